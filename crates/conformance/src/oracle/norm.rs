//! Layer and root-mean-square normalisation of one row.

use crate::float::{MIN_NORMAL_F32, ROUNDING, gamma};
use crate::want::Want;

/// The operands of one row. Missing ones are empty.
pub(crate) struct Row<'a> {
    pub(crate) input: &'a [f64],
    pub(crate) residual: &'a [f64],
    pub(crate) weight: &'a [f64],
    pub(crate) bias: &'a [f64],
    pub(crate) eps: f64,
}

/// The relative error of 1/√x, by `inverseSqrt` (2 units) or by a square root (itself 4.5) and a division.
const RSQRT: f64 = 7.0 * ROUNDING;

impl Row<'_> {
    /// x = input + residual, and the error of that sum.
    fn sum(&self, i: usize) -> (f64, f64) {
        match self.residual.get(i) {
            Some(residual) => {
                let sum = self.input[i] + residual;
                (sum, ROUNDING * sum.abs())
            }
            None => (self.input[i], 0.0),
        }
    }

    /// (x − μ)/√(σ² + eps)·weight + bias, in two passes or by Welford's updates.
    ///
    /// The mean is off by δμ = γ(n + 4)·Σ|x|/n, a deviation c = x − μ by δc = δx + δμ + 2⁻²³·|c|, and the variance by
    /// Σ(2|c|·δc + δc²)/n and γ(n + 5) of itself. A variance from the mean square minus the squared mean doesn't meet
    /// this.
    pub(crate) fn layer_norm(&self) -> Vec<Want> {
        let n = self.input.len() as f64;
        let x: Vec<(f64, f64)> = (0..self.input.len()).map(|i| self.sum(i)).collect();
        let mean = x.iter().map(|x| x.0).sum::<f64>() / n;
        let mean_error = x.iter().map(|x| x.1 + gamma(self.input.len() + 4) * x.0.abs()).sum::<f64>() / n;
        let deviations: Vec<(f64, f64)> = x
            .iter()
            .map(|&(x, error)| (x - mean, error + mean_error + ROUNDING * (x - mean).abs()))
            .collect();
        self.scale(&deviations)
    }

    /// x/√(mean(x²) + eps)·weight.
    pub(crate) fn rms_norm(&self) -> Vec<Want> {
        let x: Vec<(f64, f64)> = (0..self.input.len()).map(|i| self.sum(i)).collect();
        self.scale(&x)
    }

    /// c/√(mean(c²) + eps)·weight + bias for numbers c with errors.
    fn scale(&self, c: &[(f64, f64)]) -> Vec<Want> {
        let n = c.len() as f64;
        let square = c.iter().map(|c| c.0 * c.0).sum::<f64>() / n;
        let square_error = c
            .iter()
            .map(|&(c, error)| {
                let moved = 2.0 * c.abs() * error + error * error;
                moved + gamma(self.input.len() + 5) * (c * c + moved) + MIN_NORMAL_F32
            })
            .sum::<f64>()
            / n;
        // eps itself is rounded to f32, and the sum is.
        let sum = square + self.eps;
        let sum_error = square_error + ROUNDING * (sum + square_error) + ROUNDING * self.eps;
        let factor = 1.0 / sum.sqrt();
        let largest = if sum_error < sum { (1.0 + RSQRT) / (sum - sum_error).sqrt() } else { f64::INFINITY };
        let factor_error = largest - factor;
        c.iter()
            .enumerate()
            .map(|(i, &(c, error))| {
                let weight = self.weight.get(i).copied().unwrap_or(1.0);
                let bias = self.bias.get(i).copied().unwrap_or(0.0);
                let scaled = c * factor * weight;
                let scaled_error = ((c.abs() + error) * factor_error + error * factor) * weight.abs();
                // Two products and a sum.
                let roundings = gamma(3) * (scaled.abs() + scaled_error) + ROUNDING * bias.abs();
                Want::near(scaled + bias, scaled_error + roundings)
            })
            .collect()
    }
}

/// (x − mean)/√(variance + eps)·weight + bias.
///
/// The difference is rounded; so are eps and the sum under the root, which halves their errors.
pub(crate) fn batch_norm(x: f64, [mean, variance, weight, bias]: [f64; 4], eps: f64) -> Want {
    let scaled = (x - mean) / (variance + eps).sqrt() * weight;
    let relative = 1.001 * (2.0 * ROUNDING + RSQRT + gamma(3));
    Want::near(scaled + bias, relative * scaled.abs() + ROUNDING * bias.abs() + 4.0 * MIN_NORMAL_F32)
}
