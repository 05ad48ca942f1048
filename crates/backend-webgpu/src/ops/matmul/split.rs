//! Products of few tiles with long sums: several workgroups make parts of each sum, and a second kernel adds them.

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::{Activation, BackendResult, DType, checked_product};

use super::plan::Plan;
use super::{Params, Product, Windows, activation_code, launch, params};
use crate::context::{Context, linear_grid};
use crate::kernels::{KernelSource, Variant, kernel};

static COMBINE: KernelSource = kernel!(
    "gemm/combine",
    libs: [GRID, SPECIAL, UNARY, ACTIVATE, MATMUL],
    types: ["TC"],
    constants: ["ACTIVATION"],
    reads: 2,
    writes: 1,
    params: Params,
);

const WORKGROUP: usize = 256;

/// A multiple of every kernel's step.
const STEP: usize = 64;

fn variant(dtype: DType, activation: Activation) -> Variant {
    Variant::new(&COMBINE, [dtype], [activation_code(activation)])
}

pub(super) fn variants() -> Vec<Variant> {
    let dtypes = [DType::F32, DType::F16].into_iter();
    dtypes
        .flat_map(|dtype| Activation::ALL.iter().map(move |&activation| variant(dtype, activation)))
        .collect()
}

/// Makes the product in `plan.splits` pieces at most.
pub(super) fn run(
    ctx: &Context,
    op: &'static str,
    desc: &MatmulDesc,
    windows: &Windows,
    plan: &Plan,
) -> BackendResult<()> {
    let pieces = Pieces::new(desc, plan.splits);
    let elements = checked_product(op, "scratch", &[pieces.count, desc.m, desc.n])?;
    let bytes = checked_product(op, "scratch", &[elements, DType::F32.size()])?;
    let partial = ctx.output(op, &ctx.memory.scratch(op, bytes)?, DType::F32)?;
    let parts = Windows { bias: ctx.null(), c: partial, ..windows.clone() };
    launch(ctx, op, &pieces.product(desc), &parts, &plan.piece())?;

    let whole = Product::whole(&desc.with_batch(pieces.count));
    let finished = params(op, &whole, windows, plan.tile())?;
    let grid = linear_grid(op, (desc.m * desc.n).div_ceil(WORKGROUP))?;
    let variant = variant(desc.c.dtype, desc.activation);
    ctx.launch(op, &variant, &[&parts.c, &windows.bias], &windows.c, &finished, grid)
}

/// k in pieces of one length but for the last.
struct Pieces {
    length: usize,
    count: usize,
}

impl Pieces {
    fn new(desc: &MatmulDesc, splits: usize) -> Self {
        let length = desc.k.div_ceil(splits).next_multiple_of(STEP);
        Self { length, count: desc.k.div_ceil(length).max(1) }
    }

    /// The pieces as a batch of products, each the next in a row of packed matrices.
    fn product(&self, desc: &MatmulDesc) -> Product {
        let next = |matrix: Matrix, k_down: bool| {
            matrix.with_batch_stride(self.length * if k_down { matrix.ld } else { 1 })
        };
        let mut pieces = *desc;
        pieces.k = self.length;
        pieces.batch = self.count;
        pieces.a = next(desc.a, desc.trans_a.is_transposed());
        pieces.b = next(desc.b, !desc.trans_b.is_transposed());
        pieces.c = Matrix::new(0, DType::F32, desc.n).with_batch_stride(desc.m * desc.n);
        (pieces.alpha, pieces.beta, pieces.bias) = (1.0, 0.0, None);
        Product { desc: pieces, k_last: desc.k - (self.count - 1) * self.length }
    }
}
