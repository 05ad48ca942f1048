//! Quantised matrices: products, lookups and dequantisation.

use std::borrow::Cow;

use backend_api::BackendResult;
use backend_api::desc::{DequantizeDesc, QuantGatherDesc, QuantMatmulDesc, RmsNorm};
use backend_api::quant::{QuantLayout, QuantRow, UNIT};
use bytemuck::cast_slice_mut;
use pulp::{Arch, Simd, WithSimd};

use super::few_rows::{self, FewRows};
use super::gather::inside;
use super::int8::{Rounded, rounds};
use super::matmul::multiply;
use super::matrix::{row_major, row_major_ref};
use super::norm::normalise;
use crate::access::{Call, Input};
use crate::bound::require_end;
use crate::element::{Element, widen, with_float};
use crate::math::{apply_binary, apply_unary};
use crate::parallel::Cores;
use crate::room::{NoRoom, zeros};
use crate::strided::boxes;

/// Rows of B in a dequantised panel.
pub(super) const PANEL_ROWS: usize = 32;

/// Weights in the share of one thread.
pub(super) const GRAIN: usize = 1 << 14;

/// `C = residual + activation(alpha · A · Bᵀ + bias)`.
pub(crate) fn quant_matmul(call: Call<'_>, desc: &QuantMatmulDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    let layout = desc.b.layout(call.op)?;
    require_end(call.op, desc.flops())?;
    call.try_access(&operands, |[a, b, _, bias, residual, norm], c| {
        let (m, n, k) = (desc.m, desc.b.rows, desc.k());
        // A weight is dequantised once, which takes about as long as sixteen products.
        let steps = n.saturating_mul(k.max(16)).saturating_mul(m.saturating_add(16)) / 16;
        Cores::try_run(steps, |cores| {
            let a = with_float!(desc.a.dtype, T => {
                let a = widen::<T>(cores, a)?;
                if let Some(RmsNorm { eps, .. }) = desc.norm {
                    let weight = widen::<T>(cores, norm)?;
                    let mut a = owned(a)?;
                    let rows = a.chunks_mut(desc.a.ld.max(1)).take(m);
                    with_float!(desc.multiplied_dtype(), O => {
                        rows.for_each(|row| normalise::<O>(&mut row[..k], &weight, eps));
                    });
                    Cow::Owned(a)
                } else {
                    a
                }
            });
            let a = (&*a, [m, k, desc.a.ld]);
            let product = Product::new(cores, &layout, b.elements(), a, rounds(desc))?;
            // Cᵀ, so that threads write rows of their own.
            let mut transposed = zeros(n * m)?;
            let rows = (GRAIN / k.max(1)).max(1).next_multiple_of(PANEL_ROWS);
            cores.chunks(&mut transposed, m, rows * m, &|first, chunk| product.rows(first / m, chunk));
            with_float!(desc.c.dtype, T => {
                let bias = desc.bias.map(|_| widen::<T>(cores, bias)).transpose()?;
                let epilogue = Epilogue { desc, bias: bias.as_deref(), residual };
                epilogue.store(cores, &transposed, cast_slice_mut::<u8, T>(c));
            });
            Ok(())
        })
    })
}

/// Numbers that may be changed.
fn owned(numbers: Cow<'_, [f32]>) -> Result<Vec<f32>, NoRoom> {
    match numbers {
        Cow::Owned(numbers) => Ok(numbers),
        Cow::Borrowed(numbers) => {
            let mut copy = zeros(numbers.len())?;
            copy.copy_from_slice(numbers);
            Ok(copy)
        }
    }
}

/// Products of rows of A with rows of a quantised B.
pub(super) struct Product<'a> {
    layout: &'a QuantLayout,
    planes: &'a [u8],
    a: Activations<'a>,
    m: usize,
    k: usize,
}

/// A, as the product with it is made.
enum Activations<'a> {
    Rounded(Rounded),
    Few(FewRows),
    /// Rows, the first of each so many numbers after that of the one before.
    Many(&'a [f32], usize),
}

impl<'a> Product<'a> {
    /// The products with `m` rows of `k` activations, the first of each `lda` after that of the one before.
    pub(super) fn new(
        cores: Cores,
        layout: &'a QuantLayout,
        planes: &'a [u8],
        (a, [m, k, lda]): (&'a [f32], [usize; 3]),
        rounds: bool,
    ) -> Result<Self, NoRoom> {
        let a = if rounds {
            Activations::Rounded(Rounded::new(cores, layout.format, a, [m, k, lda])?)
        } else if m <= few_rows::ROWS {
            Activations::Few(FewRows::new(layout.format, a, [m, k, lda])?)
        } else {
            Activations::Many(a, lda)
        };
        Ok(Self { layout, planes, a, m, k })
    }

    /// Rows of Cᵀ from the row `first` on.
    pub(super) fn rows(&self, first: usize, transposed: &mut [f32]) {
        let &Self { layout, planes, ref a, m, k } = self;
        // The sums over nothing are there already.
        if k == 0 {
            return;
        }
        let (a, lda) = match a {
            Activations::Rounded(a) => return a.multiply(layout, planes, first, transposed),
            Activations::Few(a) => return a.multiply(layout, planes, first, transposed),
            &Activations::Many(a, lda) => (a, lda),
        };
        let a = row_major_ref(a, m, k, lda).transpose();
        let mut panel = vec![0.0; PANEL_ROWS.min(transposed.len() / m) * k];
        for (i, panel_of_c) in transposed.chunks_mut(PANEL_ROWS * m).enumerate() {
            let rows = panel_of_c.len() / m;
            for (j, weights) in panel.chunks_exact_mut(k).take(rows).enumerate() {
                if let Some(row) = layout.row(planes, first + i * PANEL_ROWS + j) {
                    load_row(row, weights);
                }
            }
            let b = row_major_ref(&panel, rows, k, k);
            multiply(b, a, 1.0, 0.0, row_major(panel_of_c, rows, m, m));
        }
    }
}

/// The weights of a row, as many as there is room for.
fn load_row(row: QuantRow<'_>, weights: &mut [f32]) {
    Arch::new().dispatch(LoadRow { row, weights });
}

struct LoadRow<'a> {
    row: QuantRow<'a>,
    weights: &'a mut [f32],
}

impl WithSimd for LoadRow<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let mut unit = [0.0; UNIT];
        for (number, weights) in self.weights.chunks_mut(UNIT).enumerate() {
            self.row.dequantize(number, &mut unit);
            weights.copy_from_slice(&unit[..weights.len()]);
        }
    }
}

/// What is done with the sums.
struct Epilogue<'a> {
    desc: &'a QuantMatmulDesc,
    bias: Option<&'a [f32]>,
    residual: Input<'a>,
}

impl Epilogue<'_> {
    fn store<T: Element>(&self, cores: Cores, transposed: &[f32], c: &mut [T]) {
        let desc = self.desc;
        let (m, n) = (desc.m, desc.n());
        // A sum of no products is 0, also times an infinite factor.
        let alpha = if desc.k() == 0 { 0.0 } else { desc.alpha as f32 };
        let residual: Option<&[T]> = self.residual.separate();
        let dims = [(m, desc.c.ld), (n, 1)];
        boxes(cores, &dims, c, GRAIN, &|ranges, c| {
            let (rows, columns) = (&ranges[0], &ranges[1]);
            let mut line = vec![0.0; columns.len()];
            for i in rows.clone() {
                let product =
                    |j: usize| alpha * transposed[j * m + i] + self.bias.map_or(0.0, |bias| bias[j]);
                for (x, j) in line.iter_mut().zip(columns.clone()) {
                    *x = product(j);
                }
                if let Some(gate) = desc.gate {
                    let opened: Vec<f32> = columns.clone().map(|j| product(n + j)).collect();
                    apply_binary(gate.binary(), &mut line, &opened);
                } else if let Some(activation) = desc.activation.unary() {
                    apply_unary(activation, &mut line);
                }
                let c = &mut c[(i - rows.start) * desc.c.ld..][..columns.len()];
                if let Some(matrix) = desc.residual {
                    let previous = residual.map(|residual| &residual[i * matrix.ld + columns.start..]);
                    for (j, x) in line.iter_mut().enumerate() {
                        *x += previous.map_or(c[j], |previous| previous[j]).to_f32();
                    }
                }
                T::store(&line, c);
            }
        });
    }
}

/// `output[i, c] = table[indices[i], c]`, zeros for an index outside the table.
pub(crate) fn quant_gather(call: Call<'_>, desc: &QuantGatherDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    let layout = desc.table.layout(call.op)?;
    call.access(&operands, |[table, indices, _], output| {
        let (planes, indices): (&[u8], &[u32]) = (table.elements(), indices.elements());
        let columns = layout.columns;
        with_float!(desc.dtype, T => {
            let output: &mut [T] = cast_slice_mut(output);
            Cores::run(output.len().saturating_mul(2), |cores| {
                cores.chunks(output, columns, GRAIN, &|first, chunk: &mut [T]| {
                    let mut weights = vec![0.0; columns];
                    for (i, to) in chunk.chunks_exact_mut(columns).enumerate() {
                        let index = inside(indices[first / columns + i], layout.rows);
                        match index.and_then(|index| layout.row(planes, index)) {
                            Some(row) => load_row(row, &mut weights),
                            None => weights.fill(0.0),
                        }
                        T::store(&weights, to);
                    }
                });
            });
        });
    })
}

/// `output = input`.
pub(crate) fn dequantize(call: Call<'_>, desc: &DequantizeDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    let layout = desc.input.layout(call.op)?;
    call.access(&operands, |[input, _], output| {
        let planes: &[u8] = input.elements();
        let (rows, columns) = (layout.rows, layout.columns);
        with_float!(desc.output.dtype, T => {
            let output: &mut [T] = cast_slice_mut(output);
            Cores::run(rows.saturating_mul(columns).saturating_mul(2), |cores| {
                // Rows are whole: the dimension of the columns is never divided.
                boxes(cores, &[(rows, desc.output.ld)], output, GRAIN / columns + 1, &|ranges, output| {
                    let mut weights = vec![0.0; columns];
                    for i in ranges[0].clone() {
                        if let Some(row) = layout.row(planes, i) {
                            load_row(row, &mut weights);
                        }
                        T::store(&weights, &mut output[(i - ranges[0].start) * desc.output.ld..][..columns]);
                    }
                });
            });
        });
    })
}
