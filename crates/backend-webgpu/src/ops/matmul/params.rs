//! A product as its kernels see it: their parameters, and the windows of its operands.

use backend_api::desc::{BiasAxis, MatmulDesc};
use backend_api::{BackendResult, BackendTranspose, DType};

use crate::kernels::{Lib, libs, params};
use crate::ops::op_context::{OpContext, dim};
use crate::ops::shared::tile::tiles;
use crate::recorder::Window;

/// What the kernels see of a product's operands.
#[derive(Clone, Debug)]
pub(in crate::ops) struct Windows {
    pub(in crate::ops) a: Window,
    pub(in crate::ops) b: Window,
    pub(in crate::ops) bias: Window,
    pub(in crate::ops) c: Window,
}

/// A product of operands that are bound.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) ctx: &'a OpContext,
    pub(super) op: &'static str,
    pub(super) desc: &'a MatmulDesc,
    pub(super) windows: &'a Windows,
}

/// A product with the sum over k of its last matrix, which is shorter where the batch is a sum in pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    pub(super) desc: MatmulDesc,
    pub(super) k_last: usize,
}

impl Product {
    pub(super) fn whole(desc: &MatmulDesc) -> Self {
        Self { desc: *desc, k_last: desc.k }
    }
}

params! {
    /// Sizes of a batch of products, and its tiles.
    pub(in crate::ops) struct SizeParams {
        m: u32,
        n: u32,
        k: u32,
        // k of the batch's last matrix, which may be less: the batch may be pieces of one long sum.
        k_last: u32,
        batch: u32,
        tiles_m: u32,
        tiles_n: u32,
        tiles: u32,
    }
}

params! {
    /// C, and what lib/matmul makes of a sum.
    pub(in crate::ops) struct ResultParams {
        c_offset: u32,
        c_ld: u32,
        c_batch: u32,
        bias_offset: u32,
        // 0: none, 1: one for each column, 2: one for each row.
        bias: u32,
        // Whether C is read at all.
        accumulate: u32,
        alpha: f32,
        beta: f32,
    }
}

params! {
    pub(super) struct Params {
        sizes: SizeParams,
        a_offset: u32,
        a_ld: u32,
        a_batch: u32,
        b_offset: u32,
        b_ld: u32,
        b_batch: u32,
        result: ResultParams,
    }
}

impl SizeParams {
    /// Of products of `m` by `n`, whose sums are of `k` products, in the last matrix of `k_last`.
    pub(in crate::ops) fn new(
        op: &'static str,
        [m, n]: [usize; 2],
        [k, k_last]: [usize; 2],
        batch: usize,
        tile: [usize; 2],
    ) -> BackendResult<Self> {
        let [tiles_m, tiles_n, tiles] = tiles(op, [m, n], tile, [batch])?;
        let [m, n] = [dim(op, "m", m)?, dim(op, "n", n)?];
        let [k, k_last, batch] = [dim(op, "k", k)?, dim(op, "k", k_last)?, dim(op, "batch", batch)?];
        Ok(Self { m, n, k, k_last, batch, tiles_m, tiles_n, tiles })
    }
}

/// The parameters of a product in such tiles.
pub(super) fn params(
    op: &'static str,
    product: &Product,
    windows: &Windows,
    tile: [usize; 2],
) -> BackendResult<Params> {
    let Product { desc, k_last } = product;
    let sizes = SizeParams::new(op, [desc.m, desc.n], [desc.k, *k_last], desc.batch, tile)?;
    // Without products, A and B aren't looked at.
    let read = |count: usize| if desc.k == 0 { 0 } else { count };
    let stored_rows = |rows: usize, columns, trans: BackendTranspose| {
        read(if trans.is_transposed() { columns } else { rows })
    };
    Ok(Params {
        sizes,
        a_offset: windows.a.offset,
        a_ld: stride(op, "lda", desc.a.ld, stored_rows(desc.m, desc.k, desc.trans_a))?,
        a_batch: stride(op, "stride_a", desc.a.batch_stride, read(desc.batch))?,
        b_offset: windows.b.offset,
        b_ld: stride(op, "ldb", desc.b.ld, stored_rows(desc.k, desc.n, desc.trans_b))?,
        b_batch: stride(op, "stride_b", desc.b.batch_stride, read(desc.batch))?,
        result: ResultParams {
            c_offset: windows.c.offset,
            c_ld: stride(op, "ldc", desc.c.ld, desc.m)?,
            c_batch: stride(op, "stride_c", desc.c.batch_stride, desc.batch)?,
            bias_offset: windows.bias.offset,
            bias: match desc.bias.map(|bias| bias.axis) {
                None => 0,
                Some(BiasAxis::Column) => 1,
                Some(BiasAxis::Row) => 2,
            },
            accumulate: u32::from(desc.beta as f32 != 0.0),
            alpha: factor(desc.alpha, desc.k),
            beta: desc.beta as f32,
        },
    })
}

/// The factor of a sum of `k` products: of none it is 0, also times an infinite factor.
pub(in crate::ops) fn factor(alpha: f64, k: usize) -> f32 {
    if k == 0 { 0.0 } else { alpha as f32 }
}

/// A stride that is used; one that only a single row or matrix would take doesn't matter, however large.
pub(super) fn stride(op: &'static str, what: &'static str, value: usize, count: usize) -> BackendResult<u32> {
    if count <= 1 { Ok(0) } else { dim(op, what, value) }
}

/// The activations for results of this type.
pub(super) fn activation_libs(dtype: DType) -> &'static [Lib] {
    match dtype {
        DType::F16 => &[libs::ACTIVATE_HALF],
        _ => &[libs::ACTIVATE],
    }
}
