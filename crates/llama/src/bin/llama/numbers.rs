//! Numbers of the command line.

use std::hash::{BuildHasher, Hasher, RandomState};

fn number(text: &str, is_right: impl Fn(f32) -> bool, what: &str) -> Result<f32, String> {
    let number: f32 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number.is_finite() && is_right(number) { Ok(number) } else { Err(format!("not {what}")) }
}

pub(crate) fn not_negative(text: &str) -> Result<f32, String> {
    number(text, |number| number >= 0.0, "a finite number ≥ 0")
}

pub(crate) fn above_zero(text: &str) -> Result<f32, String> {
    number(text, |number| number > 0.0, "a finite number > 0")
}

pub(crate) fn fraction(text: &str) -> Result<f32, String> {
    number(text, |number| (0.0..=1.0).contains(&number), "a number from 0 to 1")
}

pub(crate) fn whole(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "not a whole number ≥ 0".to_owned())
}

pub(crate) fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&number| number > 0).ok_or_else(|| "not a whole number ≥ 1".to_owned())
}

/// A number of tokens; with -1, as many as there can be.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    if text == "-1" {
        return Ok(usize::MAX);
    }
    whole(text).map_err(|error| format!("{error}, nor -1 for as many as there is room for"))
}

/// Where random numbers begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seed {
    pub(crate) number: u64,
    /// Whether nobody chose it.
    pub(crate) is_random: bool,
}

pub(crate) fn seed(text: &str) -> Result<Seed, String> {
    if text == "-1" {
        // 32 bits are easily typed again. The keys of a hash map are random.
        let number = RandomState::new().build_hasher().finish() >> 32;
        return Ok(Seed { number, is_random: true });
    }
    let number = text.parse().map_err(|_| "not a whole number ≥ 0, nor -1 for one at random".to_owned())?;
    Ok(Seed { number, is_random: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minus_one_has_a_meaning_of_its_own() {
        assert_eq!((count("-1"), count("0"), whole("-1").is_ok()), (Ok(usize::MAX), Ok(0), false));
        assert!(count("-2").unwrap_err().contains("nor -1 for as many as there is room for"));
        assert_eq!(seed("7"), Ok(Seed { number: 7, is_random: false }));
        let [a, b] = [seed("-1").unwrap(), seed("-1").unwrap()];
        assert!(a.is_random && a.number <= u64::from(u32::MAX) && a != b, "{a:?} {b:?}");
        assert!(seed("-2").unwrap_err().contains("nor -1 for one at random"));
    }
}
