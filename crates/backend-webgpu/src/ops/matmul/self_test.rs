//! Whether a variant on cooperative matrices gives right results on this device.
//!
//! Each multiplies two small matrices ([`SelfTest`]).

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::{Activation, BackendResult, BackendTranspose};

use super::kernel::{Kernel, Signature};
use super::plan::Plan;
use super::strategy::Strategy;
use super::{Product, Windows, params};
use crate::kernels::Variant;
use crate::ops::op_context::{OpContext, linear_grid};
use crate::ops::shared::self_test::{OP, SelfTest, compare, numbers};

impl Plan {
    /// The plan if its kernel is verified on this device, without access to the elements of fragments where
    /// only that fails.
    pub(super) fn verified(self, ctx: &OpContext) -> Option<Self> {
        let without_access = Signature { element_access: false, ..self.signature };
        let plainer = Self { signature: without_access, ..self };
        [self, plainer].into_iter().find(|plan| plan.is_verified(ctx))
    }

    fn is_verified(&self, ctx: &OpContext) -> bool {
        let needs = self.implementation().needs();
        (self.signature.vectors || !needs.vectors) && (!needs.self_test || passes(ctx, self))
    }
}

/// Whether the plan's variant is right, its activation apart; found out at its first use.
fn passes(ctx: &OpContext, plan: &Plan) -> bool {
    let identity = Signature { activation: Activation::Identity, ..plan.signature };
    let plan = if plan.split().is_whole() { Plan { signature: identity, ..*plan } } else { plan.partial() };
    ctx.is_right(&variant(&plan), move |ctx| check(ctx, &plan))
}

fn variant(plan: &Plan) -> Variant {
    match (plan.kernel, plan.strategy) {
        (Kernel::Cooperative(tile), Strategy::Emulated(_)) => tile.unscaling_variant(&plan.signature),
        _ => plan.implementation().variant(&plan.signature),
    }
}

/// Multiplies two small matrices and compares the product with the host's.
fn check(ctx: &OpContext, plan: &Plan) -> BackendResult<()> {
    let problem = Problem::new(plan);
    compare(&problem.run(ctx, plan)?, &problem.product())
}

/// The binding of the bias, behind which those of exponents are.
const BIAS: usize = 2;

/// The exponent of lines that were not scaled, as shaders/lib/f16_parts.wgsl has it.
const TOP: i32 = 14;

/// The exponent of a row of A, as if it had been scaled.
fn row_exponent(row: usize) -> i32 {
    TOP + (row % 3) as i32
}

/// The exponent of a column of B, as if it had been scaled.
fn column_exponent(column: usize) -> i32 {
    TOP + 2 - (column % 3) as i32
}

/// A product of more than one tile and more than two steps, none of them whole.
struct Problem {
    /// Whether the kernel undoes a scaling of A's rows and B's columns.
    is_unscaling: bool,
    desc: MatmulDesc,
    a: Vec<i32>,
    b: Vec<i32>,
}

impl Problem {
    fn new(plan: &Plan) -> Self {
        // Rows of whole groups of eight elements, of which the last tile and the first step have a few.
        const EIGHT: usize = 8;
        let [tile_m, tile_n] = plan.tile();
        let k = 2 * plan.implementation().k_block() + EIGHT;
        let (m, n) = (tile_m + 3 * EIGHT, tile_n + 5 * EIGHT);
        let [trans_a, trans_b] = plan.signature.trans;
        let [a, b] = [(m, k, trans_a), (k, n, trans_b)].map(|(rows, columns, transposed)| {
            let (rows, columns) = if transposed { (columns, rows) } else { (rows, columns) };
            (rows, columns + EIGHT)
        });
        let matrix = |dtype, ld| Matrix::new(0, dtype, ld);
        let [dtype_a, dtype_b, dtype_c] = plan.signature.dtypes;
        let transposed = |yes| if yes { BackendTranspose::Trans } else { BackendTranspose::NoTrans };
        let (a_matrix, b_matrix) = (matrix(dtype_a, a.1), matrix(dtype_b, b.1));
        Self {
            is_unscaling: matches!(plan.strategy, Strategy::Emulated(_)),
            desc: MatmulDesc::new(m, n, k, a_matrix, b_matrix, matrix(dtype_c, n + 4))
                .with_transpose(transposed(trans_a), transposed(trans_b)),
            a: numbers(1, a.0 * a.1, k),
            b: numbers(2, b.0 * b.1, k),
        }
    }

    /// C as the device makes it, `None` where it was not written.
    fn run(&self, ctx: &OpContext, plan: &Plan) -> BackendResult<Vec<Option<i32>>> {
        let mut test = SelfTest::new(ctx);
        let results = test.results(self.desc.m * self.desc.c.ld, self.desc.c.dtype)?;
        let windows = Windows {
            a: test.halves(&self.a)?,
            b: test.halves(&self.b)?,
            bias: ctx.null(),
            c: results.window.clone(),
        };
        let mut params = params(OP, &Product::whole(&self.desc), &windows, plan.tile())?;
        let kernel = plan.implementation();
        if kernel.is_transposed() {
            params = params.transposed();
        }
        let mut bound = kernel.inputs(&windows);
        let exponents = if self.is_unscaling {
            let lines = self.desc.m.max(self.desc.n);
            let mut of =
                |exponent: fn(usize) -> i32| test.integers(&(0..lines).map(exponent).collect::<Vec<_>>());
            vec![of(row_exponent)?, of(column_exponent)?]
        } else {
            Vec::new()
        };
        bound.splice(BIAS + 1..BIAS + 1, exponents.iter());
        bound.push(&windows.c);
        let grid = linear_grid(OP, params.sizes.tiles as usize)?;
        test.launch(&variant(plan), &bound, &params, grid)?;
        test.whole_numbers(results)
    }

    /// C with every sum in its place and nothing in the padding of its rows.
    fn product(&self) -> Vec<Option<i32>> {
        let &MatmulDesc { m, n, k, trans_a, trans_b, .. } = &self.desc;
        let [a_ld, b_ld, c_ld] = [self.desc.a.ld, self.desc.b.ld, self.desc.c.ld];
        let at = |row, column, ld, trans: BackendTranspose| {
            if trans.is_transposed() { column * ld + row } else { row * ld + column }
        };
        let sum = |i, j| -> i32 {
            (0..k).map(|l| self.a[at(i, l, a_ld, trans_a)] * self.b[at(l, j, b_ld, trans_b)]).sum()
        };
        let scale = |i, j| match self.is_unscaling {
            true => 1 << (row_exponent(i) + column_exponent(j) - 2 * TOP),
            false => 1,
        };
        (0..m)
            .flat_map(|i| (0..c_ld).map(move |j| (i, j)))
            .map(|(i, j)| (j < n).then(|| sum(i, j) * scale(i, j)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use backend_api::DType;

    use super::super::pack::Prep;
    use super::*;
    use crate::ops::shared::self_test::WHOLE;

    /// Otherwise a right kernel would be taken for a wrong one.
    #[test]
    fn products_are_whole_numbers_of_f16() {
        let halves = Matrix::new(0, DType::F16, 1 << 12);
        let desc = MatmulDesc::new(1 << 12, 1 << 12, 1 << 12, halves, halves, halves)
            .with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans);
        for kernel in Kernel::all().filter(|kernel| kernel.implementation().needs().self_test) {
            let (signature, prep) = (Signature::of(&desc), [Prep::AsIs; 2]);
            let product =
                Problem::new(&Plan { kernel, signature, prep, strategy: Strategy::Whole }).product();
            let largest = product.into_iter().flatten().map(i32::unsigned_abs).max().unwrap_or_default();
            assert!((1..=WHOLE).contains(&(largest as usize)), "{kernel}: {largest}");
        }
    }
}
