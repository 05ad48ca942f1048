//! Matrix products: every product of the backend is formed here.

use backend_api::desc::{BiasAxis, MatmulDesc};
use backend_api::{Activation, BackendResult, BackendTranspose};
use bytemuck::cast_slice_mut;
use faer::prelude::ReborrowMut;
use faer::{Accum, MatRef, Par};

use super::matrix::{RowMajor, for_each_row, row_major, row_major_ref};
use crate::access::Call;
use crate::bound::require_end;
use crate::element::{Element, widen, with_float};
use crate::math::apply_unary;
use crate::parallel::Cores;
use crate::strided::boxes;

/// Products in a block that one thread computes at once.
const BLOCK_PRODUCTS: usize = 1 << 22;

/// Rows and columns below which a block isn't divided further, however deep the product is: packing the
/// factors would begin to cost more than multiplying them.
const BLOCK_SIDE: usize = 256;

/// `C = activation(alpha · op(A) · op(B) + beta · C + bias)`.
pub(crate) fn matmul(call: Call<'_>, desc: &MatmulDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    require_end(call.op, desc.flops())?;
    call.try_access(&operands, |[a, b, _, bias], c| {
        // Sixteen products take about as long as one step of an element-wise loop.
        let products = desc.m.saturating_mul(desc.n).saturating_mul(desc.k.max(16));
        Cores::try_run(products.saturating_mul(desc.batch) / 16, |cores| {
            let a = with_float!(desc.a.dtype, T => widen::<T>(cores, a)?);
            let b = with_float!(desc.b.dtype, T => widen::<T>(cores, b)?);
            with_float!(desc.c.dtype, T => {
                let bias = widen::<T>(cores, bias)?;
                let product = Product { desc, a: &a, b: &b, bias: &bias };
                product.run(cores, cast_slice_mut::<u8, T>(c));
            });
            Ok(())
        })
    })
}

struct Product<'a> {
    desc: &'a MatmulDesc,
    a: &'a [f32],
    b: &'a [f32],
    bias: &'a [f32],
}

impl Product<'_> {
    fn run<T: Element>(&self, cores: Cores, c: &mut [T]) {
        let desc = self.desc;
        let row_products = desc.n.saturating_mul(desc.k.max(1));
        let rows = (BLOCK_PRODUCTS / row_products).max(BLOCK_SIDE);
        let dims = [(desc.batch, desc.c.batch_stride), (desc.m, desc.c.ld)];
        boxes(cores, &dims, c, rows, &|ranges, c| {
            let (batch, rows) = (&ranges[0], &ranges[1]);
            for index in batch.clone() {
                let c = &mut c[(index - batch.start) * desc.c.batch_stride..];
                let a = &self.a[self.start(index, desc.a.batch_stride)..];
                let b = &self.b[self.start(index, desc.b.batch_stride)..];
                let a = stored(a, desc.m, desc.k, desc.a.ld, desc.trans_a).subrows(rows.start, rows.len());
                let b = stored(b, desc.k, desc.n, desc.b.ld, desc.trans_b);
                self.columns(cores, a, b, row_major(c, rows.len(), desc.n, desc.c.ld), [rows.start, 0]);
            }
        });
    }

    /// Where a factor of the batch starts; with no columns it has no memory at all.
    const fn start(&self, index: usize, stride: usize) -> usize {
        if self.desc.k == 0 { 0 } else { index * stride }
    }

    /// Divides wide blocks by columns. `at` is the block's first row and column in C.
    fn columns<T: Element>(
        &self,
        cores: Cores,
        a: MatRef<'_, f32>,
        b: MatRef<'_, f32>,
        c: RowMajor<'_, T>,
        at: [usize; 2],
    ) {
        let (rows, columns) = (c.nrows(), c.ncols());
        if columns <= BLOCK_SIDE || rows.saturating_mul(columns).saturating_mul(a.ncols()) <= BLOCK_PRODUCTS {
            return self.block(a, b, c, at);
        }
        let half = columns / 2;
        let (left, right) = c.split_at_col_mut(half);
        let (b_left, b_right) = b.split_at_col(half);
        cores.join(
            || self.columns(cores, a, b_left, left, at),
            || self.columns(cores, a, b_right, right, [at[0], at[1] + half]),
        );
    }

    fn block<T: Element>(&self, a: MatRef<'_, f32>, b: MatRef<'_, f32>, c: RowMajor<'_, T>, at: [usize; 2]) {
        let desc = self.desc;
        let [alpha, beta] = [desc.alpha, desc.beta].map(|scale| scale as f32);
        T::with_f32(c, beta != 0.0, |mut c| {
            multiply(a, b, alpha, beta, c.rb_mut());
            self.epilogue(c, at);
        });
    }

    fn epilogue(&self, c: RowMajor<'_, f32>, [first_row, first_column]: [usize; 2]) {
        let Self { desc, bias, .. } = *self;
        if desc.bias.is_none() && desc.activation == Activation::Identity {
            return;
        }
        for_each_row(c, |i, row| {
            match desc.bias.map(|bias| bias.axis) {
                Some(BiasAxis::Row) => row.iter_mut().for_each(|x| *x += bias[first_row + i]),
                Some(BiasAxis::Column) => {
                    row.iter_mut().zip(&bias[first_column..]).for_each(|(x, b)| *x += b);
                }
                None => {}
            }
            if let Some(activation) = desc.activation.unary() {
                apply_unary(activation, row);
            }
        });
    }
}

/// `C = alpha · A · B + beta · C` on one thread. With `beta` 0, C isn't read.
pub(crate) fn multiply(
    a: MatRef<'_, f32>,
    b: MatRef<'_, f32>,
    alpha: f32,
    beta: f32,
    mut c: RowMajor<'_, f32>,
) {
    if beta == 0.0 {
        if a.ncols() == 0 {
            return for_each_row(c, |_, row| row.fill(0.0));
        }
        return faer::linalg::matmul::matmul(c, Accum::Replace, a, b, alpha, Par::Seq);
    }
    if beta != 1.0 {
        for_each_row(c.rb_mut(), |_, row| row.iter_mut().for_each(|x| *x *= beta));
    }
    if a.ncols() > 0 {
        faer::linalg::matmul::matmul(c, Accum::Add, a, b, alpha, Par::Seq);
    }
}

/// op(X), `rows` × `columns`, of a stored matrix.
fn stored(data: &[f32], rows: usize, columns: usize, ld: usize, trans: BackendTranspose) -> MatRef<'_, f32> {
    if trans.is_transposed() {
        row_major_ref(data, columns, rows, ld).transpose()
    } else {
        row_major_ref(data, rows, columns, ld)
    }
}
