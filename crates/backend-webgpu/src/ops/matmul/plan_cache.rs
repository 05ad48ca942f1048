//! A cache of the plans of matrix products. To compare what the kernels offer takes a host microseconds, as long as small
//! products take a GPU, and a model asks for a few kinds of products again and again.

use std::collections::HashMap;

use backend_api::desc::Matrix;

use super::choose::Choice;
use super::kernel::Signature;
use super::pack;
use super::plan::{Plan, Problem};
use crate::sync::Mutex;

/// The most plans of a cache, which is emptied when it is full.
const MOST: usize = 4096;

/// Offsets are compared modulo so many elements: no kernel reads longer vectors.
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
    /// The cached plan for such a product, or the one that `choose` chooses, which is cached if it is the cheapest.
    pub(super) fn get_or_choose(&self, problem: &Problem<'_>, choose: impl FnOnce() -> Choice) -> Plan {
        let key = Key::new(problem);
        if let Some(&cached) = self.0.lock().get(&key) {
            return cached;
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
    use crate::ops::plans::{Shapes, of_h200};

    /// Few sizes, many places in memory: keys meet again and again.
    #[test]
    fn cached_plans_are_those_that_are_chosen_anew() {
        let backend = of_h200();
        let mut shapes = Shapes(1);
        for _ in 0..20_000 {
            let [m, n, k] = [(); 3].map(|()| shapes.pick(&[1, 16, 33, 64, 256]));
            let dtype = shapes.pick(&[DType::F32, DType::F16]);
            let trans = [(); 2].map(|()| shapes.pick(&[BackendTranspose::NoTrans, BackendTranspose::Trans]));
            let mut operand = |rows: usize, columns: usize| {
                let (ld, offset) =
                    (columns + shapes.pick(&[0, 0, 1, 4, 8]), shapes.pick(&[0, 0, 1, 2, 4, 8, 16, 24]));
                let elements = offset + (rows - 1) * ld + columns + shapes.pick(&[0, 0, 1, 7, 64]);
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
            windows.a.bound.end -= shapes.pick(&[0, 8]);
            windows.b.bound.end -= shapes.pick(&[0, 8]);
            let problem = Problem { ctx, desc: &desc, windows: &windows };
            let anew = Plan::by_cost(&problem).plan;
            assert_eq!(Plan::choose(ctx, &desc, &windows), anew, "{desc:?}");
            for ptr in [a.ptr, b.ptr, c.ptr] {
                backend.free(ptr).expect("an operand");
            }
        }
        let cached =
            backend.context("plans").expect("a device").context.state.of::<PlanCache>().0.lock().len();
        assert!((100..MOST).contains(&cached), "{cached} plans of 20,000 products");
    }
}
