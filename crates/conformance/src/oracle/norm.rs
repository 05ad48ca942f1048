//! Layer and root-mean-square normalisation of one row.

use backend_api::desc::{
    BatchNormDesc, GroupNormDesc, LayerNormDesc, NormBackwardDesc, NormBackwardWeightDesc, RmsNormDesc,
};

use super::expected::{Bytes, Expected};
use crate::float::{JOINS, MIN_NORMAL_F32, ROUNDING, gamma, sums_exactly};
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

/// An eps as it is used, in f32.
fn single(eps: f64) -> f64 {
    f64::from(eps as f32)
}

/// `size`·`error`: 0 where `size` is, also where nothing bounds the error.
fn times(size: f64, error: f64) -> f64 {
    if size == 0.0 { 0.0 } else { size * error }
}

impl Row<'_> {
    /// x = input + residual, and the error of that sum.
    fn sum(&self, i: usize) -> (f64, f64) {
        match self.residual.get(i) {
            Some(residual) => {
                let sum = self.input[i] + residual;
                let is_exact = f64::from(sum as f32) == sum;
                (sum, if is_exact { 0.0 } else { ROUNDING * sum.abs() })
            }
            None => (self.input[i], 0.0),
        }
    }

    /// x = input + residual, as it is written where it is asked for.
    pub(crate) fn sums(&self) -> Vec<Want> {
        (0..self.input.len()).map(|i| self.sum(i)).map(|(sum, error)| Want::near(sum, error)).collect()
    }

    /// The roundings of a sum over the row: n, but for numbers whose sums and sums of squares are exact those
    /// of joins.
    fn sum_roundings(&self) -> usize {
        let n = self.input.len();
        let x = (0..n).map(|i| self.sum(i).0);
        if sums_exactly(x.clone()) && sums_exactly(x.map(|x| x * x)) { n.min(JOINS) } else { n }
    }

    /// (x − μ)/√(σ² + eps)·weight + bias, in two passes or by Welford's updates.
    ///
    /// With n for the roundings of a sum, the mean is off by δμ = γ(n + 4)·mean(|x|), a deviation c = x − μ
    /// by δc = δx + δμ + 2⁻²³·|c|, and the variance by Σ(2|c|·δc + δc²)/n and γ(n + 5) of itself. A variance
    /// from the mean square minus the squared mean doesn't meet this.
    pub(crate) fn layer_norm(&self) -> Vec<Want> {
        self.scale(&self.deviations(true))
    }

    /// x/√(mean(x²) + eps)·weight.
    pub(crate) fn rms_norm(&self) -> Vec<Want> {
        self.scale(&self.deviations(false))
    }

    /// 1/√(mean(c²) + eps) for numbers c with errors, and its own error.
    fn factor(&self, c: &[(f64, f64)]) -> (f64, f64) {
        let n = c.len() as f64;
        let square = c.iter().map(|c| c.0 * c.0).sum::<f64>() / n;
        let roundings = self.sum_roundings();
        let square_error = c
            .iter()
            .map(|&(c, error)| {
                let moved = 2.0 * c.abs() * error + error * error;
                moved + gamma(roundings + 5) * (c * c + moved) + MIN_NORMAL_F32
            })
            .sum::<f64>()
            / n;
        // An eps that is infinite in f32 leaves nothing of the row.
        let sum = square + single(self.eps);
        if sum.is_infinite() && square.is_finite() {
            return (0.0, 0.0);
        }
        let sum_error = square_error + ROUNDING * (sum + square_error);
        let factor = 1.0 / sum.sqrt();
        let largest = if sum_error < sum { (1.0 + RSQRT) / (sum - sum_error).sqrt() } else { f64::INFINITY };
        (factor, largest - factor)
    }

    /// c/√(mean(c²) + eps)·weight + bias for numbers c with errors.
    fn scale(&self, c: &[(f64, f64)]) -> Vec<Want> {
        let (factor, factor_error) = self.factor(c);
        c.iter()
            .enumerate()
            .map(|(i, &(c, error))| {
                let weight = self.weight.get(i).copied().unwrap_or(1.0);
                let bias = self.bias.get(i).copied().unwrap_or(0.0);
                let scaled = c * factor * weight;
                let off = times(c.abs() + error, factor_error) + times(error, factor);
                let scaled_error = times(weight.abs(), off);
                // Two products and a sum.
                let roundings = gamma(3) * (scaled.abs() + scaled_error) + ROUNDING * bias.abs();
                Want::near(scaled + bias, scaled_error + roundings)
            })
            .collect()
    }

    /// The row's numbers without their mean if it is `centred`, with errors as
    /// [`layer_norm`](Self::layer_norm) has them.
    fn deviations(&self, centred: bool) -> Vec<(f64, f64)> {
        let n = self.input.len() as f64;
        let x: Vec<(f64, f64)> = (0..self.input.len()).map(|i| self.sum(i)).collect();
        if !centred {
            return x;
        }
        let mean = x.iter().map(|x| x.0).sum::<f64>() / n;
        let rounded = gamma(self.sum_roundings() + 4);
        let mean_error = x.iter().map(|x| x.1 + rounded * x.0.abs()).sum::<f64>() / n;
        x.iter().map(|&(x, error)| (x - mean, error + mean_error + ROUNDING * (x - mean).abs())).collect()
    }

    /// The normalised row without weight and bias, each number with its error, and the factor with its own.
    fn normal(&self, centred: bool) -> (Vec<(f64, f64)>, (f64, f64)) {
        let c = self.deviations(centred);
        let (factor, factor_error) = self.factor(&c);
        let normal = c.iter().map(|&(c, error)| {
            let off = times(c.abs() + error, factor_error) + times(error, factor);
            (c * factor, off + gamma(2) * (c.abs() * factor + off))
        });
        (normal.collect(), (factor, factor_error))
    }

    /// s·(g − mean(g) − v·mean(g·v)) for g = `gradient`·weight and the normalised row v with its factor s;
    /// without mean(g) if not `centred`.
    ///
    /// Means of n numbers make n + 4 roundings (or [`JOINS`] + 4), that of the products two more, and the
    /// result four; the errors of v, s and the means are carried through.
    pub(crate) fn backward(&self, gradient: &[f64], centred: bool) -> Vec<Want> {
        let n = self.input.len();
        let (v, (s, s_error)) = self.normal(centred);
        let weight = |i: usize| self.weight.get(i).copied().unwrap_or(1.0);
        let g: Vec<f64> = gradient.iter().enumerate().map(|(i, g)| g * weight(i)).collect();
        let mean_of = |terms: &mut dyn Iterator<Item = f64>| terms.sum::<f64>() / n as f64;
        let products = g.iter().enumerate().map(|(i, g)| g * self.input[i]);
        let is_exact = sums_exactly(g.iter().copied()) && sums_exactly(products);
        let roundings = if is_exact { self.sum_roundings() } else { n };
        let on = f64::from(u8::from(centred));
        let shift = on * mean_of(&mut g.iter().copied());
        let shift_error = on * gamma(roundings + 5) * mean_of(&mut g.iter().map(|g| g.abs()));
        let product = mean_of(&mut g.iter().zip(&v).map(|(g, v)| g * v.0));
        let product_error = mean_of(
            &mut g
                .iter()
                .zip(&v)
                .map(|(g, v)| times(g.abs(), v.1 + gamma(roundings + 7) * (v.0.abs() + v.1))),
        );
        g.iter()
            .zip(&v)
            .map(|(&g, &(v, v_error))| {
                let inner = g - shift - v * product;
                let carried = ROUNDING * g.abs()
                    + shift_error
                    + times(v.abs() + v_error, product_error)
                    + times(product.abs(), v_error);
                let sizes = g.abs() + shift.abs() + v.abs() * product.abs() + carried;
                let inner_error = carried + gamma(4) * sizes;
                let bound = times(inner.abs() + inner_error, s_error) + times(s, inner_error);
                Want::near(s * inner, 1.001 * bound + ROUNDING * s * inner.abs() + 4.0 * MIN_NORMAL_F32)
            })
            .collect()
    }

    /// `gradient`·v for the normalised row v: what it adds to the gradient of the weight, and the error of
    /// that.
    pub(crate) fn weight_gradient(&self, gradient: &[f64], centred: bool) -> Vec<(f64, f64)> {
        let (v, _) = self.normal(centred);
        v.iter()
            .zip(gradient)
            .map(|(&(v, error), g)| (g * v, times(g.abs(), error + ROUNDING * (v.abs() + error))))
            .collect()
    }
}

/// (x − mean)/√(variance + eps)·weight + bias.
///
/// The difference is rounded; so is the sum under the root, which halves its error.
pub(crate) fn batch_norm(x: f64, [mean, variance, weight, bias]: [f64; 4], eps: f64) -> Want {
    let scaled = (x - mean) / (variance + single(eps)).sqrt() * weight;
    let relative = 1.001 * (2.0 * ROUNDING + RSQRT + gamma(3));
    Want::near(scaled + bias, relative * scaled.abs() + ROUNDING * bias.abs() + 4.0 * MIN_NORMAL_F32)
}

/// The gradient of a weight: a sum over the rows of terms with errors.
pub(crate) fn weight_wants(rows: impl Iterator<Item = Vec<(f64, f64)>>, columns: usize) -> Vec<Want> {
    let (mut sums, mut n) = (vec![(0.0, 0.0, 0.0); columns], 0);
    for terms in rows {
        n += 1;
        for (sum, (term, error)) in sums.iter_mut().zip(terms) {
            *sum = (sum.0 + term, sum.1 + error, sum.2 + term.abs() + error);
        }
    }
    let flushed = n as f64 * MIN_NORMAL_F32;
    let want = |(sum, error, size): (f64, f64, f64)| Want::near(sum, error + gamma(n) * size + flushed);
    sums.into_iter().map(want).collect()
}

/// Row number `row` of packed rows; empty where there are none.
fn row(numbers: &[f64], row: usize, columns: usize) -> &[f64] {
    numbers.get(row * columns..(row + 1) * columns).unwrap_or(&[])
}

pub(super) fn expect_layer_norm(desc: &LayerNormDesc, memory: &Bytes) -> Vec<Expected> {
    let LayerNormDesc { rows, columns, dtype, weight_dtype, eps, .. } = *desc;
    let [weight, bias] = [desc.weight, desc.bias].map(|ptr| memory.optional(ptr, weight_dtype));
    let residual = memory.optional(desc.residual, dtype);
    let input = memory.numbers(desc.input, dtype);
    let of = |at: usize| {
        let (input, residual) = (row(&input, at, columns), row(&residual, at, columns));
        Row { input, residual, weight: &weight, bias: &bias, eps }
    };
    let sums = desc.sum.map(|ptr| Expected::packed(ptr, dtype, (0..rows).flat_map(|at| of(at).sums())));
    let norms =
        Expected::packed(desc.output, desc.output_dtype, (0..rows).flat_map(|at| of(at).layer_norm()));
    sums.into_iter().chain([norms]).collect()
}

pub(super) fn expect_rms_norm(desc: &RmsNormDesc, memory: &Bytes) -> Vec<Expected> {
    let RmsNormDesc { rows, columns, dtype, weight_dtype, eps, .. } = *desc;
    let (weight, residual) =
        (memory.optional(desc.weight, weight_dtype), memory.optional(desc.residual, dtype));
    let input = memory.numbers(desc.input, dtype);
    let of = |at: usize| {
        let (input, residual) = (row(&input, at, columns), row(&residual, at, columns));
        Row { input, residual, weight: &weight, bias: &[], eps }
    };
    let sums = desc.sum.map(|ptr| Expected::packed(ptr, dtype, (0..rows).flat_map(|at| of(at).sums())));
    let norms = Expected::packed(desc.output, desc.output_dtype, (0..rows).flat_map(|at| of(at).rms_norm()));
    sums.into_iter().chain([norms]).collect()
}

pub(super) fn expect_group_norm(desc: &GroupNormDesc, memory: &Bytes) -> Expected {
    let GroupNormDesc { batch, channels, spatial, groups, dtype, eps, .. } = *desc;
    let input = memory.numbers(desc.input, dtype);
    let [weight, bias] = [desc.weight, desc.bias].map(|ptr| memory.optional(ptr, desc.weight_dtype));
    let each = channels / groups;
    let wants = (0..batch * groups).flat_map(|at| {
        let first = at % groups * each;
        let spread = |scales: &[f64]| -> Vec<f64> {
            let own = scales.get(first..first + each).unwrap_or(&[]);
            own.iter().flat_map(|&scale| vec![scale; spatial]).collect()
        };
        let (weight, bias) = (spread(&weight), spread(&bias));
        Row { input: row(&input, at, each * spatial), residual: &[], weight: &weight, bias: &bias, eps }
            .layer_norm()
    });
    Expected::packed(desc.output, dtype, wants)
}

pub(super) fn expect_batch_norm(desc: &BatchNormDesc, memory: &Bytes) -> Expected {
    let BatchNormDesc { channels, spatial, dtype, eps, .. } = *desc;
    let input = memory.numbers(desc.input, dtype);
    let [mean, variance] = [desc.mean, desc.variance].map(|ptr| memory.numbers(ptr, desc.weight_dtype));
    let [weight, bias] = [desc.weight, desc.bias].map(|ptr| memory.optional(ptr, desc.weight_dtype));
    let wants = input.iter().enumerate().map(|(at, &x)| {
        let c = at / spatial % channels;
        let scale = |scales: &[f64], otherwise| scales.get(c).copied().unwrap_or(otherwise);
        batch_norm(x, [mean[c], variance[c], scale(&weight, 1.0), scale(&bias, 0.0)], eps)
    });
    Expected::packed(desc.output, dtype, wants)
}

pub(super) fn expect_norm_backward(desc: &NormBackwardDesc, memory: &Bytes) -> Expected {
    let NormBackwardDesc { rows, columns, dtype, eps, .. } = *desc;
    let [x, g] = [desc.x, desc.grad_output].map(|ptr| memory.numbers(ptr, dtype));
    let weight = memory.optional(desc.weight, dtype);
    let wants = (0..rows).flat_map(|at| {
        let of = Row { input: row(&x, at, columns), residual: &[], weight: &weight, bias: &[], eps };
        of.backward(row(&g, at, columns), desc.centred)
    });
    Expected::packed(desc.grad_input, dtype, wants)
}

pub(super) fn expect_norm_backward_weight(desc: &NormBackwardWeightDesc, memory: &Bytes) -> Expected {
    let NormBackwardWeightDesc { rows, columns, dtype, eps, .. } = *desc;
    let [x, g] = [desc.x, desc.grad_output].map(|ptr| memory.numbers(ptr, dtype));
    let terms = (0..rows).map(|at| {
        let of = Row { input: row(&x, at, columns), residual: &[], weight: &[], bias: &[], eps };
        of.weight_gradient(row(&g, at, columns), desc.centred)
    });
    Expected::packed(desc.grad_weight, dtype, weight_wants(terms, columns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_times_an_unbounded_error_is_nothing() {
        // Numbers so near to each other that rounding may leave anything of their variance.
        let input = [1e6, 1e6 + 0.0625];
        let row = Row { input: &input, residual: &[], weight: &[0.0, 1.0], bias: &[], eps: 1e-5 };
        let wants = [row.layer_norm(), row.backward(&[0.0, 36.0], true)].concat();
        for want in wants {
            assert!(matches!(want, Want::Near { bound, .. } if !bound.is_nan()), "{want:?}");
        }
        assert_eq!(row.weight_gradient(&[0.0, 1.0], true)[0].1, 0.0);
    }
}
