//! Products of few tiles with long sums: several workgroups make parts of each sum, and a second kernel adds
//! them.

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::support::checked_product;
use backend_api::{Activation, BackendResult, DType};

use super::plan::Plan;
use super::strategy::Split;
use super::{Call, Params, Product, Windows, launch, params};
use crate::kernels::libs::{ACTIVATE, ACTIVATE_HALF, LINE_EXPONENTS, NO_LINE_EXPONENTS};
use crate::kernels::{KernelSource, Lib, Variant, constants, kernel};
use crate::ops::op_context::{OpContext, invocation_grid};
use crate::recorder::Window;

constants! { struct Constants { activation: Activation } }

static COMBINE: KernelSource = kernel!(
    "gemm/combine", libs: [GRID, MATMUL, C_ELEMENTS],
    types: ["TC"], constants: Constants, params: Params,
    reads: ["partial: f32", "row_exponents: i32", "column_exponents: i32", "bias: TC"], writes: ["c: TC"],
);

fn variant(dtype: DType, activation: Activation, scaled: bool) -> Variant {
    let libs: &[Lib] = match (dtype, scaled) {
        (DType::F16, _) => &[ACTIVATE_HALF, NO_LINE_EXPONENTS],
        (_, false) => &[ACTIVATE, NO_LINE_EXPONENTS],
        (_, true) => &[ACTIVATE, LINE_EXPONENTS],
    };
    Variant::new(&COMBINE, [dtype], Constants { activation }).with_libs(libs)
}

pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for &activation in Activation::ALL {
        variants.push(variant(DType::F16, activation, false));
        variants.extend([false, true].map(|scaled| variant(DType::F32, activation, scaled)));
    }
    variants
}

/// Makes the product with k split as in the plan.
pub(super) fn run(call: Call<'_>, plan: &Plan) -> BackendResult<()> {
    combine(call, plan, &Partial::make(call, plan)?, None)
}

/// Parts of sums: packed m×n matrices of f32, one after another.
pub(super) struct Partial {
    window: Window,
    count: usize,
}

impl Partial {
    /// Sums that are whole, but not finished.
    pub(super) fn whole(window: Window) -> Self {
        Self { window, count: 1 }
    }

    /// Multiplies without finishing: no operands, no bias, no activation.
    pub(super) fn make(call: Call<'_>, plan: &Plan) -> BackendResult<Self> {
        let Call { ctx, op, desc, windows } = call;
        let pieces = Pieces::new(desc, plan.split());
        let elements = checked_product(op, "scratch", &[pieces.count, desc.m, desc.n])?;
        let bytes = checked_product(op, "scratch", &[elements, DType::F32.size()])?;
        let window = ctx.output(&ctx.scratch(op, bytes)?, DType::F32);
        let parts = Windows { bias: ctx.null(), c: window, ..windows.clone() };
        launch(ctx, op, &pieces.product(desc), &parts, &plan.partial())?;
        Ok(Self { window: parts.c, count: pieces.count })
    }
}

/// Adds the parts of each sum and finishes it. With exponents of the rows of A and the columns of B, undoes
/// their scaling.
pub(super) fn combine(
    call: Call<'_>,
    plan: &Plan,
    partial: &Partial,
    exponents: Option<[&Window; 2]>,
) -> BackendResult<()> {
    let Call { ctx, op, desc, windows } = call;
    let whole = Product::whole(&desc.with_batch(partial.count));
    let params = params(op, &whole, windows, plan.tile())?;
    let grid = invocation_grid(op, desc.m * desc.n)?;
    let variant = variant(desc.c.dtype, desc.activation, exponents.is_some());
    let null = ctx.null();
    let [rows, columns] = exponents.unwrap_or([&null; 2]);
    let inputs = [&partial.window, rows, columns, &windows.bias];
    ctx.launch(op, &variant, &inputs, &windows.c, &params, grid)
}

/// k in pieces of one length but for the last.
struct Pieces {
    length: usize,
    count: usize,
}

impl Pieces {
    fn new(desc: &MatmulDesc, split: Split) -> Self {
        let (length, count) = split.length_and_count(desc.k);
        Self { length, count }
    }

    /// The pieces as a batch of products, each the next in a row of packed matrices.
    fn product(&self, desc: &MatmulDesc) -> Product {
        let next = |matrix: Matrix, mn_major: bool| {
            matrix.with_batch_stride(self.length * if mn_major { matrix.ld } else { 1 })
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

/// `output = activation(Σ parts)`: packed m×n matrices of f32 that lie one after another, added in order.
pub(in crate::ops) fn add_pieces(
    ctx: &OpContext,
    op: &'static str,
    parts: &Window,
    count: usize,
    [m, n]: [usize; 2],
    activation: Activation,
    (output, dtype): (&Window, DType),
) -> BackendResult<()> {
    let matrix = Matrix::new(0, DType::F32, n);
    let desc = MatmulDesc::new(m, n, 0, matrix, matrix, Matrix::new(0, dtype, n)).with_batch(count);
    let windows = Windows { a: ctx.null(), b: ctx.null(), bias: ctx.null(), c: output.clone() };
    let mut params = params(op, &Product::whole(&desc), &windows, [1; 2])?;
    // The parts are sums already, of whatever length.
    params.result.alpha = 1.0;
    let grid = invocation_grid(op, m * n)?;
    let (null, variant) = (ctx.null(), variant(dtype, activation, false));
    ctx.launch(op, &variant, &[parts, &null, &null, &null], output, &params, grid)
}

#[cfg(test)]
mod tests {
    use backend_api::ComputeBackend as _;
    use backend_api::support::{Access, Operand};

    use super::*;
    use crate::WebGpuBackend;

    const OP: &str = "test";

    /// The suites run few convolutions whose sums are made in pieces on software adapters.
    #[test]
    fn pieces_are_added() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let ([m, n], count) = ([2, 3], 4);
        let numbers: Vec<f32> = (0..count * m * n).map(|i| i as f32).collect();
        let [parts, output] = [numbers.len(), m * n].map(|elements| backend.alloc(4 * elements).unwrap());
        backend.copy_htod(parts, bytemuck::cast_slice(&numbers)).unwrap();
        backend.copy_htod(output, &[0xff; 24]).unwrap();
        let call = backend.context(OP).unwrap();
        let operands = [
            Operand::bytes("parts", parts, 4 * numbers.len(), Access::Read),
            Operand::bytes("output", output, 24, Access::Write),
        ];
        let [Some(of_parts), Some(of_output)] = call.context.resolve(OP, &operands).unwrap() else {
            panic!("both have bytes");
        };
        let ctx = &call.context;
        let [of_parts, of_output] = [of_parts, of_output].map(|slice| ctx.output(&slice, DType::F32));
        add_pieces(ctx, OP, &of_parts, count, [m, n], Activation::Identity, (&of_output, DType::F32))
            .unwrap();
        ctx.commit(OP).unwrap();
        let mut found = [0; 24];
        backend.copy_dtoh(&mut found, output).unwrap();
        let expected: Vec<f32> =
            (0..m * n).map(|i| (0..count).map(|piece| numbers[piece * m * n + i]).sum()).collect();
        assert_eq!(bytemuck::pod_collect_to_vec::<u8, f32>(&found), expected);
    }
}
