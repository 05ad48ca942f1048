//! f32 products on tensor cores, which take f16: each operand is split into two parts of f16, and three of
//! the four products of their parts are added.
//!
//! After Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
//! theoretical peak performance", 2022. Each row of A and each column of B is scaled by a power of two first,
//! so that every exponent of f32 is served. The parts are laid out one after another along k, which makes one
//! product of three times the length.

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::support::checked_product;
use backend_api::{BackendResult, DType};

use super::kernel::Kernel;
use super::plan::Plan;
use super::split::{self, Partial};
use super::strategy::{PARTS, STEP};
use super::{Call, Windows, cooperative, stride};
use crate::device::h200;
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::ops::op_context::{OpContext, dim, invocation_grid, linear_grid};
use crate::recorder::Window;

constants! { struct SplitConstants { right: bool } }

static EXPONENTS: KernelSource = kernel!(
    "gemm/exponents", libs: [GRID, F16_PARTS, LINE_LARGEST],
    types: [], constants: [], params: SplitParams,
    reads: ["source: f32"], writes: ["exponents: i32"],
);

static SPLIT_COLUMNS: KernelSource = kernel!(
    "gemm/split_columns", libs: [GRID, F16_PARTS],
    types: [], constants: SplitConstants, params: SplitParams,
    reads: ["source: f32", "exponents: i32"], writes: ["parts: u32"],
);

static SPLIT_ROWS: KernelSource = kernel!(
    "gemm/split_rows", libs: [GRID, F16_PARTS, LINE_LARGEST],
    types: [], constants: SplitConstants, params: SplitParams,
    reads: ["source: f32"], writes: ["exponents: i32", "parts: u32"],
);

params! {
    struct SplitParams {
        // Of the matrix, as it is stored.
        rows: u32,
        columns: u32,
        offset: u32,
        ld: u32,
        // Of one copy: rows, and pairs of elements in a row.
        rows_out: u32,
        pairs: u32,
    }
}

pub(super) fn variants() -> Vec<Variant> {
    let split = |source| [false, true].map(|right| Variant::new(source, [], SplitConstants { right }));
    let exponents = Variant::new(&EXPONENTS, [], []);
    [exponents].into_iter().chain(split(&SPLIT_COLUMNS)).chain(split(&SPLIT_ROWS)).collect()
}

/// The nanoseconds that a product is estimated to take whose parts are multiplied in so many.
pub(super) fn time(desc: &MatmulDesc, product: usize, compute_units: usize) -> usize {
    // Elements of operands that are split in a nanosecond, each read twice and written as three of f16.
    const RATE: usize = 250;
    // At most two launches for each operand.
    const LAUNCHES: usize = 4 * h200::SHORT_LAUNCH;
    let &MatmulDesc { m, n, k, .. } = desc;
    let elements = m.saturating_add(n).saturating_mul(k);
    h200::partial_sums(elements, RATE, compute_units).saturating_add(LAUNCHES).saturating_add(product)
}

/// An operand in parts, and the exponents of its lines.
struct SplitOperand {
    matrix: Matrix,
    parts: Window,
    exponents: Window,
}

/// Makes the product with the plan that `choose` has for the product of the parts.
pub(super) fn run(call: Call<'_>, plan: &Plan) -> BackendResult<()> {
    let Call { ctx, op, desc, windows } = call;
    let k = desc.k.next_multiple_of(STEP);
    let a = split(ctx, op, StoredOperand::left(desc, &windows.a), k)?;
    let b = split(ctx, op, StoredOperand::right(desc, &windows.b), k)?;
    let mut parts = *desc;
    (parts.a, parts.b, parts.k) = (a.matrix, b.matrix, PARTS * k);
    let part_windows = Windows { a: a.parts, b: b.parts, ..windows.clone() };
    let of_parts = Call { desc: &parts, windows: &part_windows, ..call };
    let exponents = [&a.exponents, &b.exponents];
    if let Kernel::Cooperative(tile) = plan.kernel
        && plan.split().is_whole()
    {
        return cooperative::launch_unscaling(of_parts, tile, &plan.signature, exponents);
    }
    let partial = Partial::make(of_parts, plan)?;
    split::combine(call, plan, &partial, Some(exponents))
}

/// An operand as it is stored.
struct StoredOperand<'a> {
    window: &'a Window,
    matrix: Matrix,
    rows: usize,
    columns: usize,
    mn_major: bool,
    right: bool,
}

impl<'a> StoredOperand<'a> {
    fn left(desc: &MatmulDesc, window: &'a Window) -> Self {
        let mn_major = desc.trans_a.is_transposed();
        let (rows, columns) = if mn_major { (desc.k, desc.m) } else { (desc.m, desc.k) };
        Self { window, matrix: desc.a, rows, columns, mn_major, right: false }
    }

    fn right(desc: &MatmulDesc, window: &'a Window) -> Self {
        let mn_major = !desc.trans_b.is_transposed();
        let (rows, columns) = if mn_major { (desc.k, desc.n) } else { (desc.n, desc.k) };
        Self { window, matrix: desc.b, rows, columns, mn_major, right: true }
    }
}

fn split(
    ctx: &OpContext,
    op: &'static str,
    operand: StoredOperand<'_>,
    k: usize,
) -> BackendResult<SplitOperand> {
    // Columns whose exponents a workgroup finds at once.
    const COLUMNS: usize = 16;
    // Rows that a workgroup splits.
    const ROWS: usize = 8;
    let StoredOperand { window, matrix, rows, columns, mn_major, right } = operand;
    let (lines, rows_out, columns_out) = if mn_major { (columns, k, columns) } else { (rows, rows, k) };
    let exponents = checked_product(op, "scratch", &[lines, size_of::<i32>()])?;
    let exponents = ctx.output(&ctx.scratch(op, exponents)?, DType::I32);
    let row = columns_out.next_multiple_of(8);
    let size = checked_product(op, "scratch", &[PARTS, rows_out, row])?;
    let bytes = checked_product(op, "scratch", &[size, DType::F16.size()])?;
    let parts = ctx.output(&ctx.scratch(op, bytes)?, DType::F16);
    let params = SplitParams {
        rows: dim(op, "rows", rows)?,
        columns: dim(op, "columns", columns)?,
        offset: window.offset,
        ld: stride(op, "ld", matrix.ld, rows)?,
        rows_out: dim(op, "rows", rows_out)?,
        pairs: dim(op, "columns", row / 2)?,
    };
    let constants = SplitConstants { right };
    if mn_major {
        let grid = linear_grid(op, columns.div_ceil(COLUMNS))?;
        ctx.launch(op, &Variant::new(&EXPONENTS, [], []), &[window], &exponents, &params, grid)?;
        let grid = invocation_grid(op, rows_out * row / 2)?;
        let variant = Variant::new(&SPLIT_COLUMNS, [], constants);
        ctx.launch(op, &variant, &[window, &exponents], &parts, &params, grid)?;
    } else {
        let (variant, grid) =
            (Variant::new(&SPLIT_ROWS, [], constants), linear_grid(op, rows.div_ceil(ROWS))?);
        ctx.launch(op, &variant, &[window, &exponents], &parts, &params, grid)?;
    }
    let ld = if mn_major { row } else { PARTS * row };
    Ok(SplitOperand { matrix: Matrix::new(0, DType::F16, ld), parts, exponents })
}
