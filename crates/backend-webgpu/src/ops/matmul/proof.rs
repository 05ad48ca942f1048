//! Whether a variant on cooperative matrices gives right results on this device.
//!
//! They are an experimental feature of wgpu, and a driver that can't compile such a kernel may say so only when it is
//! used, or never. So each variant multiplies small whole numbers, whose products f16 and f32 hold exactly, before it
//! is used for anything else. A variant that fails is not used again.

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::{Activation, BackendError, BackendResult, BackendTranspose, DType, Diagnostic};
use half::f16;

use super::plan::Plan;
use super::{Product, Windows, params};
use crate::context::{Context, linear_grid};
use crate::ops::self_test::{OP, SelfTest};

/// Whether the plan's variant is right, its activation apart; found out at its first use.
pub(super) fn holds(ctx: &Context, plan: &Plan) -> bool {
    let plan =
        if plan.splits > 1 { plan.piece() } else { Plan { activation: Activation::Identity, ..*plan } };
    ctx.proofs.holds(&plan.variant(), || check(ctx, &plan))
}

/// Multiplies two small matrices and compares the product with the host's.
fn check(ctx: &Context, plan: &Plan) -> BackendResult<()> {
    let problem = Problem::new(plan);
    let found = problem.run(ctx, plan)?;
    let wanted = problem.product();
    let Some(at) = (0..wanted.len()).find(|&at| found.get(at) != wanted.get(at)) else {
        return Ok(());
    };
    Err(BackendError::Driver {
        op: OP,
        source: Diagnostic(format!("element {at} is {:?}, not {:?}", found.get(at), wanted.get(at))),
    })
}

/// A product of more than one tile and more than two steps, none of them whole.
struct Problem {
    desc: MatmulDesc,
    a: Vec<i32>,
    b: Vec<i32>,
}

impl Problem {
    fn new(plan: &Plan) -> Self {
        // Rows of whole groups of eight elements, of which the last tile and the first step have a few.
        const EIGHT: usize = 8;
        let [tile_m, tile_n] = plan.tile();
        let (m, n, k) = (tile_m + 3 * EIGHT, tile_n + 5 * EIGHT, 128 + EIGHT);
        let [trans_a, trans_b] = plan.trans;
        let [a, b] = [(m, k, trans_a), (k, n, trans_b)].map(|(rows, columns, transposed)| {
            let (rows, columns) = if transposed { (columns, rows) } else { (rows, columns) };
            (rows, columns + EIGHT)
        });
        let matrix = |dtype, ld| Matrix::new(0, dtype, ld);
        let [dtype_a, dtype_b, dtype_c] = plan.dtypes;
        let transposed = |yes| if yes { BackendTranspose::Trans } else { BackendTranspose::NoTrans };
        let (a_matrix, b_matrix) = (matrix(dtype_a, a.1), matrix(dtype_b, b.1));
        Self {
            desc: MatmulDesc::new(m, n, k, a_matrix, b_matrix, matrix(dtype_c, n + 4))
                .with_transpose(transposed(trans_a), transposed(trans_b)),
            a: numbers(1, a.0 * a.1),
            b: numbers(2, b.0 * b.1),
        }
    }

    /// C as the device makes it, `None` where it was not written.
    fn run(&self, ctx: &Context, plan: &Plan) -> BackendResult<Vec<Option<i32>>> {
        let mut test = SelfTest::new(ctx);
        let dtype = self.desc.c.dtype;
        let mut result = vec![0xff; (self.desc.m * self.desc.c.ld * dtype.size()).next_multiple_of(4)];
        let c = test.upload(&result)?;
        let mut factor = |numbers: &[i32]| {
            let elements = numbers.iter().map(|&x| f16::from_f32(x as f32));
            let bytes: Vec<u8> = elements.flat_map(f16::to_le_bytes).collect();
            let slice = test.upload(&bytes)?;
            ctx.output(OP, &slice, DType::F16)
        };
        let windows = Windows {
            a: factor(&self.a)?,
            b: factor(&self.b)?,
            bias: ctx.null(),
            c: ctx.output(OP, &c, dtype)?,
        };
        let params = params(OP, &Product::whole(&self.desc), &windows, plan.tile())?;
        let mut bound = plan.inputs(&windows);
        bound.push(&windows.c);
        test.launch(&plan.variant(), &bound, &params, linear_grid(OP, params.tiles as usize)?)?;
        test.read_back(&c, &mut result)?;
        Ok(whole_numbers(&result, dtype).collect())
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
        (0..m).flat_map(|i| (0..c_ld).map(move |j| (i, j))).map(|(i, j)| (j < n).then(|| sum(i, j))).collect()
    }
}

/// Whole numbers from −3 to 3 without a pattern. Sums of 136 of their products are whole numbers of f16.
fn numbers(seed: u32, count: usize) -> Vec<i32> {
    let mix = |i: u32| (i ^ (i >> 15)).wrapping_mul(0x2c1b_3c6d) >> 16;
    (0..count as u32).map(|i| (mix(i.wrapping_mul(0x9e37_79b9) ^ seed) % 7) as i32 - 3).collect()
}

/// The elements as whole numbers, `None` for NaN and all that is none.
fn whole_numbers(bytes: &[u8], dtype: DType) -> impl Iterator<Item = Option<i32>> {
    bytes.chunks_exact(dtype.size()).map(move |bytes| {
        let x = match *bytes {
            [a, b] => f16::from_le_bytes([a, b]).to_f32(),
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
            _ => f32::NAN,
        };
        (x.fract() == 0.0).then_some(x as i32)
    })
}
