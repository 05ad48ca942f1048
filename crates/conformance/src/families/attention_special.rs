//! What attention's operands hold where numbers aren't finite, or where scores reach the ends of f32.

use std::fmt;

use backend_api::DType;

/// What is special about the operands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Special {
    None,
    /// One number of the first, the middle and the last vector of q, k or v, or of the mask (`m`).
    One {
        of: char,
        at: At,
        value: f64,
    },
    /// The last number of every key.
    EveryKey(f64),
    /// Values of +∞ and −∞ for the first and the last key.
    OppositeValues,
    /// A scale of random scores.
    Scale(f64),
    /// Scores of scale·q·k, with one k for even and another for odd keys: equal, or far apart.
    Products {
        q: f64,
        k: [f64; 2],
        scale: f64,
        softcap: f64,
    },
}

/// Which of the vectors, or of the keys of a row of the mask.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    First,
    Middle,
    Last,
}

const INF: f64 = f64::INFINITY;
const NAN: f64 = f64::NAN;
const MAX: f64 = f32::MAX as f64;
/// 2⁶⁴, the square root of the least number that f32 has no room for.
const ROOT: f64 = 18_446_744_073_709_551_616.0;
/// 2¹²⁶.
const LARGE: f64 = 0.25 * ROOT * ROOT;

/// Every content, those of scores alone last.
pub(super) const SPECIAL: [Special; 52] = [
    one('q', At::First, NAN),
    one('q', At::Last, INF),
    one('q', At::Middle, -INF),
    one('k', At::First, NAN),
    one('k', At::Middle, NAN),
    one('k', At::Last, NAN),
    one('k', At::Middle, INF),
    one('k', At::Last, -INF),
    one('v', At::First, NAN),
    one('v', At::Middle, NAN),
    one('v', At::Last, NAN),
    one('v', At::First, INF),
    one('v', At::Middle, -INF),
    one('v', At::Last, INF),
    one('v', At::Last, -INF),
    one('m', At::First, NAN),
    one('m', At::Middle, INF),
    one('m', At::Last, NAN),
    one('m', At::Last, -INF),
    Special::EveryKey(NAN),
    Special::EveryKey(INF),
    Special::OppositeValues,
    products(1.0, [-1.0, -1.0], LARGE),
    products(1.0, [1.0, -1.0], LARGE),
    products(ROOT / 16.0, [-4.0 * ROOT, -4.0 * ROOT], 1.0),
    products(ROOT / 16.0, [-4.0 * ROOT, -8.0 * ROOT], 1.0),
    products(ROOT / 16.0, [-8.0 * ROOT, -8.0 * ROOT], 1.0),
    products(1.0, [-MAX, -MAX], 1.0),
    products(1.0, [MAX, MAX], 1.0),
    products(1.0, [MAX, -MAX], 1.0),
    products(1.0, [-MAX, -0.5 * MAX], 1.0),
    products(2.0, [-MAX, -MAX], 0.25),
    products(4.0, [MAX / 8.0, -MAX / 8.0], 1.5),
    products(ROOT, [ROOT, 1.0], 1.0),
    products(ROOT, [-ROOT, 0.0], 1.0),
    products(ROOT, [-ROOT, -ROOT], 1.0),
    products(1.0, [-1.0, -1.0], -LARGE),
    products(1.0, [2.0, -2.0], -LARGE),
    products(1.0, [1.0, 1.0], 3e38),
    products(1.0, [-1.0, -1.0], INF),
    products(1.0, [1.0, -1.0], 1e39),
    products(1.0, [0.0, -1.0], -INF),
    capped(1.0, [MAX, MAX], 2.0),
    capped(ROOT, [-ROOT, -ROOT], 2.0),
    capped(ROOT, [ROOT, ROOT], 3e38),
    capped(1.0, [1e38, -1e38], 1e38),
    capped(NAN, [1.0, 1.0], 2.0),
    Special::Scale(NAN),
    Special::Scale(INF),
    Special::Scale(-INF),
    Special::Scale(0.0),
    Special::Scale(-6.0),
];

const fn one(of: char, at: At, value: f64) -> Special {
    Special::One { of, at, value }
}

const fn products(q: f64, k: [f64; 2], scale: f64) -> Special {
    Special::Products { q, k, scale, softcap: 0.0 }
}

const fn capped(q: f64, k: [f64; 2], softcap: f64) -> Special {
    Special::Products { q, k, scale: 1.0, softcap }
}

impl At {
    const fn of(self, count: usize) -> usize {
        match self {
            Self::First => 0,
            Self::Middle => count / 2,
            Self::Last => count.saturating_sub(1),
        }
    }
}

impl Special {
    /// The scale, where it isn't the usual one.
    pub(super) const fn scale(self) -> Option<f64> {
        match self {
            Self::Scale(scale) | Self::Products { scale, .. } => Some(scale),
            _ => None,
        }
    }

    pub(super) const fn softcap(self) -> f64 {
        match self {
            Self::Products { softcap, .. } => softcap,
            _ => 0.0,
        }
    }

    /// Whether it has a place only where there are masks and softcaps.
    pub(super) fn needs_options(self) -> bool {
        self.needs_mask() || self.softcap() != 0.0
    }

    pub(super) const fn needs_mask(self) -> bool {
        matches!(self, Self::One { of: 'm', .. })
    }

    /// Whether scores are equal to the bit, or far apart.
    pub(super) const fn is_distinct(self) -> bool {
        matches!(self, Self::Products { .. })
    }

    /// Whether the types of queries and keys have room for it.
    pub(super) fn fits(self, dtypes: &[DType; 2]) -> bool {
        let has_room = |x: f64, dtype| dtype != DType::F16 || !x.is_finite() || x.abs() < 65_504.0;
        match self {
            Self::Products { q, k, .. } => {
                has_room(q, dtypes[0]) && k.into_iter().all(|k| has_room(k, dtypes[1]))
            }
            _ => true,
        }
    }

    /// Changes the vector of a token of q, k or v.
    pub(super) fn change(self, of: char, token: usize, tokens: usize, vector: &mut [f64]) {
        let at = |at: At| at.of(tokens) == token;
        let last = vector.len().saturating_sub(1);
        let Some(number) = vector.get_mut(last) else { return };
        match self {
            Self::One { of: other, at: place, value } if of == other && at(place) => *number = value,
            Self::EveryKey(value) if of == 'k' => *number = value,
            Self::OppositeValues if of == 'v' && at(At::First) => *number = INF,
            Self::OppositeValues if of == 'v' && at(At::Last) => *number = -INF,
            Self::Products { q, k, .. } if of != 'v' => {
                vector.fill(0.0);
                vector[last] = if of == 'q' { q } else { k[token % 2] };
            }
            _ => {}
        }
    }

    /// Changes a row of the mask.
    pub(super) fn change_mask(self, row: &mut [f64]) {
        if let Self::One { of: 'm', at, value } = self
            && let Some(number) = row.get_mut(at.of(row.len()))
        {
            *number = value;
        }
    }
}

/// Appended to a case's name.
impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::One { of, at, value } => write!(f, "_{of}{at:?}{value:e}"),
            Self::EveryKey(value) => write!(f, "_kEvery{value:e}"),
            Self::OppositeValues => f.write_str("_vOpposite"),
            Self::Scale(scale) => write!(f, "_scale{scale:e}"),
            Self::Products { q, k: [even, odd], scale, .. } => {
                write!(f, "_products{q:.2e}x{even:.2e}_{odd:.2e}x{scale:.2e}")
            }
        }
    }
}
