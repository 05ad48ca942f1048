//! reduce_ext.

use backend_api::desc::{ReduceDesc, TensorDesc};
use backend_api::{BackendResult, ComputeBackend, DType, ReduceOp};

use super::expect::{Expect, OVERFLOW, SHAPE, TOO_SMALL, dtype, less_than, overlap, shape, too_small};
use super::{Handles, Operation, Role, Slot};
use DType::{F16, F32, I32, U32};

const HUGE: usize = 1 << 40;

pub(super) fn operations() -> Vec<Operation> {
    vec![
        operation(F32, F32, ReduceOp::Sum, 3.0),
        operation(F16, F16, ReduceOp::Sum, 3.0),
        operation(I32, I32, ReduceOp::Sum, 3.0),
        operation(F32, I32, ReduceOp::ArgMax, 0.0),
    ]
}

/// Shape, strides and axes of a call, and the output's strides.
#[derive(Clone, Copy, Debug)]
struct Call {
    op: ReduceOp,
    dtypes: [DType; 2],
    shape: &'static [usize],
    strides: Option<&'static [usize]>,
    axes: &'static [usize],
    output_strides: Option<&'static [usize]>,
}

impl Call {
    fn make(&self, b: &dyn ComputeBackend, h: &Handles) -> BackendResult<()> {
        let [from, to] = self.dtypes;
        let input = TensorDesc::packed(h[0], from, self.shape).with_strides(self.strides);
        let mut desc = ReduceDesc::new(self.op, input, self.axes, h[1]);
        (desc.output_dtype, desc.output_strides) = (to, self.output_strides);
        b.reduce_ext(&desc)
    }
}

/// Sums or indices over the middle of 2×3×4.
fn operation(from: DType, to: DType, reduce: ReduceOp, result: f32) -> Operation {
    let op = "reduce_ext";
    let slots = vec![Slot::new("input", Role::Input, from, 24), Slot::new("output", Role::Output, to, 8)];
    let good = Call {
        op: reduce,
        dtypes: [from, to],
        shape: &[2, 3, 4],
        strides: None,
        axes: &[1],
        output_strides: None,
    };
    let wrong_output = if reduce.is_index() { U32 } else { [F16, F32][usize::from(from == I32)] };
    let wrong_output = if from == F16 { I32 } else { wrong_output };
    let axis = |got| less_than(op, "axis", 3, got);
    let bytes = from.size();
    let changes: [(&'static str, Expect, Call); 17] = [
        ("axis 3 of rank 3", axis(3), Call { axes: &[3], ..good }),
        ("a second axis of usize::MAX", axis(usize::MAX), Call { axes: &[0, usize::MAX], ..good }),
        ("an axis twice", SHAPE, Call { axes: &[1, 0, 1], ..good }),
        ("two input strides", shape(op, "input strides", 3, 2), Call { strides: Some(&[4, 1]), ..good }),
        (
            "three output strides",
            shape(op, "output strides", 2, 3),
            Call { output_strides: Some(&[4, 4, 1]), ..good },
        ),
        (
            "outputs at one place",
            overlap(op, "output", "output"),
            Call { output_strides: Some(&[4, 0]), ..good },
        ),
        (
            "output rows overlapping",
            overlap(op, "output", "output"),
            Call { output_strides: Some(&[3, 1]), ..good },
        ),
        (
            "an output of another type",
            dtype(op, "output", wrong_output),
            Call { dtypes: [from, wrong_output], ..good },
        ),
        (
            "the mean of integers",
            dtype(op, "input", U32),
            Call { op: ReduceOp::Mean, dtypes: [U32, U32], ..good },
        ),
        (
            "an index as a float",
            dtype(op, "output", F32),
            Call { op: ReduceOp::ArgMin, dtypes: [from, F32], ..good },
        ),
        ("a longer axis", too_small(op, "input", 24 * bytes, 32 * bytes), Call { shape: &[2, 4, 4], ..good }),
        ("more outputs", TOO_SMALL, Call { axes: &[0], ..good }),
        ("an input stride too large", TOO_SMALL, Call { strides: Some(&[12, 4, 2]), ..good }),
        ("an output stride too large", TOO_SMALL, Call { output_strides: Some(&[8, 1]), ..good }),
        ("2^40 rows of 2^40", OVERFLOW, Call { shape: &[HUGE, 1, HUGE], ..good }),
        ("an input stride of usize::MAX", OVERFLOW, Call { strides: Some(&[usize::MAX, 4, 1]), ..good }),
        ("an output stride of usize::MAX", OVERFLOW, Call { output_strides: Some(&[usize::MAX, 1]), ..good }),
    ];
    let mut operation = Operation::new(op, slots, result, move |b, h| good.make(b, h))
        .variant(format_args!("{} of {from}", reduce.name()));
    for (name, expect, call) in changes {
        operation = operation.bad(name, expect, move |b, h| call.make(b, h));
    }
    operation
}
