//! Plans that were made before. Comparing what the kernels offer takes the host 2 to 10 µs, as long as small products take a
//! GPU, and a model asks for a few kinds of products again and again.

use std::collections::HashMap;

use backend_api::desc::Matrix;

use super::choose::Choice;
use super::kernel::Signature;
use super::pack;
use super::plan::{Plan, Problem};
use crate::sync::Mutex;

/// The most plans that are kept. When there are more, all are forgotten.
const MOST: usize = 4096;

/// Elements that offsets are compared by: no kernel reads longer vectors.
const UNIT: u32 = 16;

/// The plans of products on a device.
#[derive(Debug, Default)]
pub(crate) struct PlanCache(Mutex<HashMap<Key, Plan>>);

/// What a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// Rows, columns, the length of sums, matrices of the batch.
    sizes: [usize; 4],
    signature: Signature,
    /// Leading dimensions and batch strides of A and B.
    strides: [[usize; 2]; 2],
    /// Where A and B begin.
    offsets: [u32; 2],
    has_whole_vectors: bool,
    /// A tuning text may change them.
    compute_units: usize,
}

impl Key {
    fn new(problem: &Problem<'_>) -> Self {
        let &Problem { desc, windows, .. } = problem;
        let strides = |matrix: &Matrix| [matrix.ld, matrix.batch_stride];
        Self {
            sizes: [desc.m, desc.n, desc.k, desc.batch],
            signature: Signature::of(desc),
            strides: [strides(&desc.a), strides(&desc.b)],
            offsets: [windows.a.offset % UNIT, windows.b.offset % UNIT],
            has_whole_vectors: pack::has_whole_vectors(desc, windows),
            compute_units: problem.compute_units(),
        }
    }
}

impl PlanCache {
    /// The plan that was kept for such a product, or the one that `choose` chooses, which is kept if it is the cheapest.
    pub(super) fn get_or_choose(&self, problem: &Problem<'_>, choose: impl FnOnce() -> Choice) -> Plan {
        let key = Key::new(problem);
        if let Some(&kept) = self.0.lock().get(&key) {
            return kept;
        }
        // Without the lock, as a kernel may be tested first.
        let Choice { plan, is_cheapest } = choose();
        if is_cheapest {
            let mut plans = self.0.lock();
            if plans.len() >= MOST {
                plans.clear();
            }
            plans.insert(key, plan);
        }
        plan
    }
}

#[cfg(test)]
mod tests {
    use backend_api::desc::MatmulDesc;
    use backend_api::{BackendTranspose, ComputeBackend as _, DType};

    use super::super::windows;
    use super::*;
    use crate::ops::plans::of_h200;

    /// Few sizes, many places in memory: keys meet again and again.
    #[test]
    fn kept_plans_are_those_that_are_chosen_anew() {
        let backend = of_h200();
        let mut state = 1u64;
        let mut one_of = |choices: &[usize]| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            choices[(state >> 33) as usize % choices.len()]
        };
        for _ in 0..20_000 {
            let [m, n, k] = [(); 3].map(|()| one_of(&[1, 16, 33, 64, 256]));
            let dtype = [DType::F32, DType::F16][one_of(&[0, 1])];
            let trans =
                [(); 2].map(|()| [BackendTranspose::NoTrans, BackendTranspose::Trans][one_of(&[0, 1])]);
            let mut operand = |rows: usize, columns: usize| {
                let (ld, offset) = (columns + one_of(&[0, 0, 1, 4, 8]), one_of(&[0, 0, 1, 2, 4, 8, 16, 24]));
                let elements = offset + (rows - 1) * ld + columns + one_of(&[0, 0, 1, 7, 64]);
                let ptr = backend.alloc(elements * dtype.size()).expect("memory");
                Matrix::new(ptr, dtype, ld).with_offset(offset)
            };
            let (a, b) = (
                if trans[0].is_transposed() { operand(k, m) } else { operand(m, k) },
                if trans[1].is_transposed() { operand(n, k) } else { operand(k, n) },
            );
            let c = operand(m, n);
            let desc = MatmulDesc::new(m, n, k, a, b, c).with_transpose(trans[0], trans[1]);
            let call = backend.context("plans").expect("a device");
            let ctx = &call.context;
            let mut windows = windows(ctx, "plans", &desc).expect("operands").expect("a product");
            // Blocks of ours end with a whole vector, those of others may not.
            windows.a.size -= one_of(&[0, 8]) as u64;
            windows.b.size -= one_of(&[0, 8]) as u64;
            let problem = Problem { ctx, desc: &desc, windows: &windows };
            let anew = Plan::by_cost(&problem).plan;
            assert_eq!(Plan::choose(ctx, &desc, &windows), anew, "{desc:?}");
            for ptr in [a.ptr, b.ptr, c.ptr] {
                backend.free(ptr).expect("an operand");
            }
        }
        let kept = backend.context("plans").expect("a device").context.state.matmul_plans.0.lock().len();
        assert!((100..MOST).contains(&kept), "{kept} plans of 20,000 products");
    }
}
