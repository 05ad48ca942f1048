//! Rotary position embedding of one vector.

use backend_api::desc::RopeStyle;

use crate::float::{MIN_NORMAL_F32, gamma};
use crate::want::Want;

/// `x` rotated by the angles with the given cosines and sines, one for each pair; the numbers behind the
/// pairs are copied. Two products and a sum: γ(2) of their magnitudes.
pub(crate) fn rope(x: &[f64], cos: &[f64], sin: &[f64], style: RopeStyle) -> Vec<Want> {
    let pairs = cos.len();
    let mut wants: Vec<Want> = x.iter().map(|&x| Want::Exact(x)).collect();
    for (pair, (c, s)) in cos.iter().zip(sin).enumerate() {
        let (i, j) = match style {
            RopeStyle::Half => (pair, pair + pairs),
            RopeStyle::Interleaved => (2 * pair, 2 * pair + 1),
        };
        let near = |a: f64, b: f64| Want::near(a + b, gamma(2) * (a.abs() + b.abs()) + 2.0 * MIN_NORMAL_F32);
        wants[i] = near(x[i] * c, -x[j] * s);
        wants[j] = near(x[i] * s, x[j] * c);
    }
    wants
}
