//! Layer, root-mean-square and group normalisation of rows, with f64 means; batch normalisation.

use std::borrow::Cow;

use backend_api::desc::{BatchNormDesc, GroupNormDesc, LayerNormDesc, RmsNormDesc};
use backend_api::{BackendResult, DType};
use bytemuck::cast_slice_mut;

use crate::access::{Call, Input};
use crate::element::{Element, widen, with_float};
use crate::math::fold;
use crate::parallel::Cores;
use crate::room::{NoRoom, filled};

/// Numbers in the share of one thread.
const GRAIN: usize = 1 << 14;

/// `output = (x − mean(x)) / √(var(x) + eps) · weight + bias`, `x = input + residual`.
pub(crate) fn layer_norm(call: Call<'_>, desc: &LayerNormDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    call.try_access_two(&operands, |[input, _, weight, bias, residual, _], outputs| {
        let &LayerNormDesc { dtype, output_dtype, weight_dtype, columns, eps, .. } = desc;
        let given = [desc.weight.map(|_| weight), desc.bias.map(|_| bias), desc.residual.map(|_| residual)];
        let norm = RowNorm { dtype, output_dtype, weight_dtype, columns, eps, centred: true };
        norm.run(input, given, outputs)
    })
}

/// `output = x / √(mean(x²) + eps) · weight`, `x = input + residual`.
pub(crate) fn rms_norm(call: Call<'_>, desc: &RmsNormDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    call.try_access_two(&operands, |[input, _, weight, residual, _], outputs| {
        let &RmsNormDesc { dtype, output_dtype, weight_dtype, columns, eps, .. } = desc;
        let given = [desc.weight.map(|_| weight), None, desc.residual.map(|_| residual)];
        let norm = RowNorm { dtype, output_dtype, weight_dtype, columns, eps, centred: false };
        norm.run(input, given, outputs)
    })
}

/// `output = (x − mean(x)) / √(var(x) + eps) · weight + bias` over groups of channels.
pub(crate) fn group_norm(call: Call<'_>, desc: &GroupNormDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    call.try_access_two(&operands, |[input, _, weight, bias], outputs| {
        Cores::try_run(outputs[0].len(), |cores| {
            let scale = Scale { cores, dtype: desc.weight_dtype, length: desc.channels };
            let norm = Norm {
                columns: desc.channels / desc.groups * desc.spatial,
                rows: desc.groups,
                each: desc.spatial,
                eps: desc.eps,
                centred: true,
                weight: scale.vector(desc.weight.map(|_| weight), 1.0)?,
                bias: scale.vector(desc.bias.map(|_| bias), 0.0)?,
            };
            let [output, _] = outputs;
            with_float!(desc.dtype, T => {
                norm.run::<T, T>(cores, input, None, (cast_slice_mut(output), &mut []));
            });
            Ok(())
        })
    })
}

/// `output = (x − mean) / √(variance + eps) · weight + bias` for each channel.
pub(crate) fn batch_norm(call: Call<'_>, desc: &BatchNormDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    let &BatchNormDesc { channels, spatial, eps, .. } = desc;
    call.try_access(&operands, |[input, _, mean, variance, weight, bias], output| {
        Cores::try_run(output.len(), |cores| {
            with_float!(desc.dtype, T => {
                let scale = Scale { cores, dtype: desc.weight_dtype, length: channels };
                let (mean, variance) = (scale.given(mean)?, scale.given(variance)?);
                let weight = scale.vector(desc.weight.map(|_| weight), 1.0)?;
                let bias = scale.vector(desc.bias.map(|_| bias), 0.0)?;
                let input = input.separate::<T>();
                cores.chunks(cast_slice_mut(output), spatial, GRAIN, &|first, chunk: &mut [T]| {
                    for (i, y) in chunk.chunks_exact_mut(spatial).enumerate() {
                        let c = (first / spatial + i) % channels;
                        let factor = f64::from(weight[c]) / (f64::from(variance[c]) + single(eps)).sqrt();
                        if let Some(input) = input {
                            y.copy_from_slice(&input[first + i * spatial..][..spatial]);
                        }
                        for y in y {
                            let centred = f64::from(y.to_f32()) - f64::from(mean[c]);
                            *y = T::from_f32((centred * factor + f64::from(bias[c])) as f32);
                        }
                    }
                });
            });
            Ok(())
        })
    })
}

/// An eps as it is used, in f32.
pub(super) fn single(eps: f64) -> f64 {
    f64::from(eps as f32)
}

/// How weights, biases and statistics are read: one for each column or channel.
#[derive(Clone, Copy)]
struct Scale {
    cores: Cores,
    dtype: DType,
    length: usize,
}

impl Scale {
    fn given(self, input: Input<'_>) -> Result<Cow<'_, [f32]>, NoRoom> {
        with_float!(self.dtype, W => widen::<W>(self.cores, input))
    }

    /// An operand that may be left out.
    fn vector(self, input: Option<Input<'_>>, default: f32) -> Result<Cow<'_, [f32]>, NoRoom> {
        input.map_or_else(|| filled(default, self.length).map(Cow::Owned), |input| self.given(input))
    }
}

/// A normalisation of rows that have a weight and a bias for each column.
struct RowNorm {
    dtype: DType,
    output_dtype: DType,
    weight_dtype: DType,
    columns: usize,
    eps: f64,
    /// Whether the mean is subtracted.
    centred: bool,
}

impl RowNorm {
    /// Normalises the rows of input and residual into the first output, and writes their sum to the second where there
    /// is one.
    fn run(
        self,
        input: Input<'_>,
        [weight, bias, residual]: [Option<Input<'_>>; 3],
        [output, sums]: [&mut [u8]; 2],
    ) -> Result<(), NoRoom> {
        let Self { dtype, output_dtype, weight_dtype, columns, eps, centred } = self;
        Cores::try_run(output.len(), |cores| {
            let scale = Scale { cores, dtype: weight_dtype, length: columns };
            let (weight, bias) = (scale.vector(weight, 1.0)?, scale.vector(bias, 0.0)?);
            let norm = Norm { columns, rows: 1, each: 1, eps, centred, weight, bias };
            with_float!(dtype, T => with_float!(output_dtype, O => {
                norm.run::<T, O>(cores, input, residual, (cast_slice_mut(output), cast_slice_mut(sums)));
            }));
            Ok(())
        })
    }
}

struct Norm<'a> {
    columns: usize,
    /// Rows until the weights are the same again.
    rows: usize,
    /// Columns that have one weight.
    each: usize,
    eps: f64,
    /// Whether the mean is subtracted.
    centred: bool,
    weight: Cow<'a, [f32]>,
    bias: Cow<'a, [f32]>,
}

impl Norm<'_> {
    /// Normalises the rows of `input + residual` into the first output, and writes them to the second where
    /// there is one.
    fn run<T: Element, O: Element>(
        &self,
        cores: Cores,
        input: Input<'_>,
        residual: Option<Input<'_>>,
        outputs: (&mut [O], &mut [T]),
    ) {
        let columns = self.columns;
        cores.chunks_of_two(outputs, columns, GRAIN, &|first, (chunk, sums): (&mut [O], &mut [T])| {
            let mut x = vec![0.0; columns];
            let mut r = vec![0.0; columns];
            let mut sums = sums.chunks_exact_mut(columns);
            for (i, row) in chunk.chunks_exact_mut(columns).enumerate() {
                let mut sum = sums.next();
                let load = |input: Input<'_>, to: &mut [f32]| match input {
                    Input::InPlace => O::load(row, to),
                    Input::InSecond => T::load(sum.as_deref().unwrap_or_default(), to),
                    Input::Bytes(_) => T::load(&input.elements()[first + i * columns..][..columns], to),
                };
                load(input, &mut x);
                if let Some(residual) = residual {
                    load(residual, &mut r);
                    x.iter_mut().zip(&r).for_each(|(x, r)| *x += r);
                }
                if let Some(sum) = &mut sum {
                    T::store(&x, sum);
                }
                self.normalize(&mut x, (first / columns + i) % self.rows * (columns / self.each));
                O::store(&x, row);
            }
        });
    }

    /// Normalises a row whose weights start at `first`.
    fn normalize(&self, x: &mut [f32], first: usize) {
        let n = x.len() as f64;
        let add = |a: f64, b: f64| a + b;
        let mean = if self.centred { fold(x, 0.0, f64::from, add) / n } else { 0.0 };
        let square = |x: f32| (f64::from(x) - mean) * (f64::from(x) - mean);
        let factor = 1.0 / (fold(x, 0.0, square, add) / n + single(self.eps)).sqrt();
        let scales = self.weight[first..].iter().zip(&self.bias[first..]);
        for (channel, (&weight, &bias)) in x.chunks_mut(self.each).zip(scales) {
            for x in channel {
                let normal = (f64::from(*x) - mean) * factor;
                *x = (normal * f64::from(weight) + f64::from(bias)) as f32;
            }
        }
    }
}

/// `x / √(mean(x²) + eps) · weight` in place of a row, each number rounded to its type.
pub(super) fn normalise<T: Element>(row: &mut [f32], weight: &[f32], eps: f64) {
    let square: f64 = row.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    let factor = (square / row.len() as f64 + single(eps)).sqrt().recip();
    for (x, &weight) in row.iter_mut().zip(weight) {
        *x = T::from_f32((f64::from(*x) * factor * f64::from(weight)) as f32).to_f32();
    }
}
