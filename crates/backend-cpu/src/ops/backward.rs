//! Gradients of softmax and of the normalisations of rows, in f64.

use backend_api::BackendResult;
use backend_api::desc::{NormBackwardDesc, NormBackwardWeightDesc, SoftmaxBackwardDesc};
use bytemuck::cast_slice_mut;

use super::norm::single;
use crate::access::Call;
use crate::element::{Element, widen, with_float};
use crate::parallel::Cores;

/// Numbers in the share of one thread.
const GRAIN: usize = 1 << 14;

/// `grad_input = y · (grad_output − Σ grad_output · y)`, or that of the logarithm.
pub(crate) fn softmax_backward(call: Call<'_>, desc: &SoftmaxBackwardDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    let &SoftmaxBackwardDesc { length, inner, log, .. } = desc;
    call.access(&operands, |[y, dy, _], dx| {
        Cores::run(dx.len(), |cores| {
            with_float!(desc.dtype, T => {
                let (y, dy, slab) = (y.elements::<T>(), dy.separate::<T>(), length * inner);
                cores.chunks(cast_slice_mut(dx), slab, GRAIN, &|first, chunk: &mut [T]| {
                    if let Some(dy) = dy {
                        chunk.copy_from_slice(&dy[first..first + chunk.len()]);
                    }
                    for (g, y) in chunk.chunks_exact_mut(slab).zip(y[first..].chunks_exact(slab)) {
                        for i in 0..inner {
                            let at = |k: usize| i + k * inner;
                            let number = |x: T| f64::from(x.to_f32());
                            let factor = |y: f64| if log { 1.0 } else { y };
                            let sum: f64 = (0..length).map(|k| number(g[at(k)]) * factor(number(y[at(k)]))).sum();
                            for k in 0..length {
                                let (g, y) = (&mut g[at(k)], number(y[at(k)]));
                                let dx = if log { number(*g) - y.exp() * sum } else { y * (number(*g) - sum) };
                                *g = T::from_f32(dx as f32);
                            }
                        }
                    }
                });
            });
        });
    })
}

/// The mean of a row, 0 if it isn't centred, and the factor that normalises it.
fn moments<T: Element>(row: &[T], eps: f64, centred: bool) -> (f64, f64) {
    let n = row.len() as f64;
    let numbers = || row.iter().map(|x| f64::from(x.to_f32()));
    let mean = if centred { numbers().sum::<f64>() / n } else { 0.0 };
    let square = numbers().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    (mean, 1.0 / (square + single(eps)).sqrt())
}

/// The gradient of a normalisation with respect to its rows.
pub(crate) fn norm_backward(call: Call<'_>, desc: &NormBackwardDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    let &NormBackwardDesc { columns, eps, centred, .. } = desc;
    call.try_access(&operands, |[x, dy, _, weight], dx| {
        Cores::try_run(dx.len(), |cores| {
            with_float!(desc.dtype, T => {
                let (x, dy) = (x.elements::<T>(), dy.separate::<T>());
                let weight = desc.weight.map(|_| widen::<T>(cores, weight)).transpose()?;
                cores.chunks(cast_slice_mut(dx), columns, GRAIN, &|first, chunk: &mut [T]| {
                    if let Some(dy) = dy {
                        chunk.copy_from_slice(&dy[first..first + chunk.len()]);
                    }
                    for (row, x) in chunk.chunks_exact_mut(columns).zip(x[first..].chunks_exact(columns)) {
                        let (mean, scale) = moments(x, eps, centred);
                        let v: Vec<f64> = x.iter().map(|x| (f64::from(x.to_f32()) - mean) * scale).collect();
                        let factor = |c: usize| weight.as_ref().map_or(1.0, |weight| f64::from(weight[c]));
                        let g: Vec<f64> =
                            row.iter().enumerate().map(|(c, g)| f64::from(g.to_f32()) * factor(c)).collect();
                        let n = columns as f64;
                        let shift = if centred { g.iter().sum::<f64>() / n } else { 0.0 };
                        let product = g.iter().zip(&v).map(|(g, v)| g * v).sum::<f64>() / n;
                        for ((dx, g), v) in row.iter_mut().zip(g).zip(v) {
                            *dx = T::from_f32((scale * (g - shift - v * product)) as f32);
                        }
                    }
                });
            });
            Ok(())
        })
    })
}

/// The gradient of a normalisation with respect to its weight.
pub(crate) fn norm_backward_weight(call: Call<'_>, desc: &NormBackwardWeightDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    let &NormBackwardWeightDesc { columns, eps, centred, .. } = desc;
    call.access(&operands, |[x, dy, _], dw| {
        with_float!(desc.dtype, T => {
            let mut sums = vec![0.0; columns];
            let rows = x.elements::<T>().chunks_exact(columns).zip(dy.elements::<T>().chunks_exact(columns));
            for (x, dy) in rows {
                let (mean, scale) = moments(x, eps, centred);
                for ((sum, x), dy) in sums.iter_mut().zip(x).zip(dy) {
                    *sum += f64::from(dy.to_f32()) * (f64::from(x.to_f32()) - mean) * scale;
                }
            }
            for (dw, sum) in cast_slice_mut::<u8, T>(dw).iter_mut().zip(sums) {
                *dw = T::from_f32(sum as f32);
            }
        });
    })
}
