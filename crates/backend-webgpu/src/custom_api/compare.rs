//! Results against a reference.

use backend_api::DType;
use backend_api::support::numbers;

/// What a binding should hold after one launch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Expected {
    /// The place of the binding among a launch's handles.
    pub binding: usize,
    /// The type of its elements.
    pub dtype: DType,
    /// The elements that it should begin with.
    pub bytes: Vec<u8>,
    /// The largest absolute error of an element, to which the relative one is added.
    pub atol: f64,
    /// The largest error of an element relative to the expected value.
    pub rtol: f64,
}

impl Expected {
    /// An exact expectation.
    #[must_use]
    pub fn new(binding: usize, dtype: DType, bytes: Vec<u8>) -> Self {
        Self { binding, dtype, bytes, atol: 0.0, rtol: 0.0 }
    }

    /// Allows `|found - expected| ≤ atol + rtol · |expected|`.
    #[must_use]
    pub fn within(mut self, atol: f64, rtol: f64) -> Self {
        (self.atol, self.rtol) = (atol, rtol);
        self
    }

    /// Compares with what was found, of as many bytes. NaN agrees with NaN alone, an infinity with itself.
    pub(super) fn compare(&self, found: &[u8]) -> Comparison {
        let mut comparison = Comparison { binding: self.binding, ..Comparison::default() };
        let pairs = numbers(self.dtype, &self.bytes).zip(numbers(self.dtype, found));
        for (index, (expected, found)) in pairs.enumerate() {
            let agrees = expected == found || (expected.is_nan() && found.is_nan());
            let abs = if agrees { 0.0 } else { (found - expected).abs() };
            // A NaN or an infinity on one side only is as wrong as can be.
            let abs = if abs.is_nan() { f64::INFINITY } else { abs };
            let rel = if abs == 0.0 { 0.0 } else { abs / expected.abs() };
            let rel = if rel.is_nan() { f64::INFINITY } else { rel };
            let allowed = self.atol + self.rtol * expected.abs();
            // A bound that is no number allows nothing.
            let is_right = agrees || (abs.is_finite() && abs <= allowed);
            comparison.elements += 1;
            comparison.wrong += usize::from(!is_right);
            if abs > comparison.max_abs_error || comparison.elements == 1 {
                comparison.max_abs_error = abs;
                comparison.worst_index = index;
                (comparison.expected, comparison.found) = (expected, found);
            }
            if rel > comparison.max_rel_error {
                comparison.max_rel_error = rel;
            }
        }
        comparison
    }
}

/// A binding's content compared with what was expected.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Comparison {
    /// The place of the binding among a launch's handles.
    pub binding: usize,
    /// Elements that were compared.
    pub elements: usize,
    /// Elements out of bounds.
    pub wrong: usize,
    /// The largest absolute error.
    pub max_abs_error: f64,
    /// The largest error relative to the expected value; infinite where something else than 0 was expected to
    /// be 0.
    pub max_rel_error: f64,
    /// The element with the largest absolute error.
    pub worst_index: usize,
    /// What it should be.
    pub expected: f64,
    /// What it is.
    pub found: f64,
}

impl Comparison {
    /// Whether every element is within its bound.
    #[must_use]
    pub const fn is_right(&self) -> bool {
        self.wrong == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(expected: &[f32], found: &[f32], atol: f64, rtol: f64) -> Comparison {
        let bytes = |numbers: &[f32]| numbers.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
        Expected::new(0, DType::F32, bytes(expected)).within(atol, rtol).compare(&bytes(found))
    }

    #[test]
    fn the_worst_element_is_named() {
        let comparison = compare(&[1.0, 2.0, 4.0], &[1.0, 2.5, 4.25], 0.1, 0.1);
        assert_eq!((comparison.elements, comparison.wrong, comparison.worst_index), (3, 1, 1));
        assert_eq!((comparison.max_abs_error, comparison.max_rel_error), (0.5, 0.25));
        assert_eq!((comparison.expected, comparison.found), (2.0, 2.5));
        assert!(compare(&[1.0, 2.0], &[1.0, 2.5], 0.1, 0.2).is_right());
    }

    #[test]
    fn what_is_not_finite_agrees_with_itself_alone() {
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        assert!(compare(&special, &special, 0.0, 0.0).is_right());
        for expected in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0] {
            for found in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0] {
                let is_same = expected.to_bits() == found.to_bits();
                assert_eq!(
                    compare(&[expected], &[found], 1.0, 1.0).is_right(),
                    is_same,
                    "{expected} {found}"
                );
            }
        }
        assert!(compare(&[], &[], 0.0, 0.0).is_right());
        // Relative to what is no finite number, an error is as large as can be.
        for [expected, found] in [[f32::NAN, 1.0], [f32::INFINITY, 1.0], [1.0, f32::NAN], [0.0, 1.0]] {
            assert_eq!(
                compare(&[expected], &[found], 0.0, 0.0).max_rel_error,
                f64::INFINITY,
                "{expected} {found}"
            );
        }
    }

    #[test]
    fn a_bound_that_is_no_number_allows_nothing() {
        for [atol, rtol] in [[f64::NAN, 0.0], [0.0, f64::NAN], [-1.0, 0.0]] {
            let comparison = compare(&[1.0, 2.0], &[1.0, 2.5], atol, rtol);
            assert_eq!((comparison.wrong, comparison.worst_index), (1, 1), "{atol} {rtol}");
        }
    }
}
