//! pool2d and its gradient.

use backend_api::DType;
use backend_api::desc::{ImageShape, PoolBackwardDesc, PoolDesc, PoolOp, PoolShape, Window};

use super::expect::{OVERFLOW, at_least, at_most, dtype, too_small_by_half};
use super::operation::Change;
use super::window::{self, Windowed};
use super::{Handles, Operation, Role, Slot};
use DType::{F16, F32, I32, U32};

const BIG: usize = 1 << 62;

/// Windows of ones that lie side by side: `[2, 3, 6, 4]` to `[2, 3, 2, 2]`.
fn extents() -> PoolShape {
    PoolShape::new(ImageShape::nchw([2, 3, 6, 4]), [2, 2], Window::new([3, 2]).with_stride([3, 2]))
}

const INPUT: usize = 2 * 3 * 6 * 4;
const OUTPUT: usize = 2 * 3 * 2 * 2;

pub(super) fn operations() -> Vec<Operation> {
    let of = |element| [forward(element, PoolOp::Max), forward(element, PoolOp::Average), backward(element)];
    [F32, F16].into_iter().flat_map(of).collect()
}

trait Shaped {
    fn shape(&mut self) -> &mut PoolShape;
}

impl Shaped for PoolDesc {
    fn shape(&mut self) -> &mut PoolShape {
        &mut self.shape
    }
}

impl Shaped for PoolBackwardDesc {
    fn shape(&mut self) -> &mut PoolShape {
        &mut self.shape
    }
}

fn geometry<D: Shaped + Windowed>(op: &'static str) -> Vec<Change<D>> {
    let mut changes: Vec<Change<D>> = vec![
        ("window higher than the input", at_least(op, "padded input", 7, 6), |d| {
            d.shape().window.size = [7, 2];
        }),
        ("output a row lower", at_least(op, "height of the output", 2, 1), |d| {
            d.shape().output = [1, 2];
        }),
        ("output a row higher", at_most(op, "height of the output", 2, 3), |d| {
            d.shape().output = [3, 2];
        }),
        ("output a column narrower", at_least(op, "width of the output", 2, 1), |d| {
            d.shape().output = [2, 1];
        }),
        ("a last window in the padding behind", at_most(op, "width of the output", 3, 4), |d| {
            (d.shape().window.after, d.shape().output) = ([0, 3], [2, 4]);
        }),
        ("2^62 images", OVERFLOW, |d| d.shape().batch = BIG),
        ("2^62 channels", OVERFLOW, |d| d.shape().channels = BIG),
    ];
    changes.extend(window::changes(op));
    changes
}

fn forward(element: DType, pool: PoolOp) -> Operation {
    let (op, bytes) = ("pool2d", element.size());
    let slots = vec![
        Slot::new("input", Role::Input, element, INPUT),
        Slot::new("output", Role::Output, element, OUTPUT),
    ];
    let good = move |h: &Handles| PoolDesc::new(pool, element, h[0], h[1], extents());
    let mut changes: Vec<Change<PoolDesc>> = vec![
        ("of i32", dtype(op, "dtype", I32), |d| d.dtype = I32),
        ("of u32", dtype(op, "dtype", U32), |d| d.dtype = U32),
        ("an image more", too_small_by_half(op, "input", INPUT * bytes), |d| d.shape.batch = 3),
        ("a row of padding above", too_small_by_half(op, "output", OUTPUT * bytes), |d| {
            (d.shape.window.before, d.shape.output) = ([1, 0], [3, 2]);
        }),
    ];
    changes.extend(geometry(op));
    Operation::of(op, slots, 1.0, good, |b, _, d| b.pool2d(d), changes)
        .variant(format_args!("{} {element}", pool.name()))
}

fn backward(element: DType) -> Operation {
    let (op, bytes) = ("pool2d_backward", element.size());
    let slots = vec![
        Slot::new("input", Role::Input, element, INPUT),
        Slot::new("grad_output", Role::Input, element, INPUT),
        Slot::new("grad_input", Role::Output, element, INPUT),
    ];
    // Windows of one number, so that the gradient is the same everywhere.
    let good = move |h: &Handles| {
        let shape = PoolShape::new(ImageShape::nchw([2, 3, 6, 4]), [6, 4], Window::new([1, 1]));
        PoolBackwardDesc::of(&PoolDesc::new(PoolOp::Max, element, h[0], 0, shape), h[1], h[2])
    };
    let changes: Vec<Change<PoolBackwardDesc>> = vec![
        ("of i32", dtype(op, "dtype", I32), |d| d.dtype = I32),
        ("an image more", too_small_by_half(op, "input", INPUT * bytes), |d| d.shape.batch = 3),
        ("an average of an image more", too_small_by_half(op, "grad_output", INPUT * bytes), |d| {
            (d.op, d.shape.batch) = (PoolOp::Average, 3);
        }),
    ];
    let beside = move |h: &Handles| {
        let pooling = PoolDesc::new(PoolOp::Max, element, h[0], 0, extents());
        PoolBackwardDesc::of(&pooling, h[1], h[2])
    };
    Operation::of(op, slots, 1.0, good, |b, _, d| b.pool2d_backward(d), changes).variant(element).broken(
        beside,
        |b, _, d| b.pool2d_backward(d),
        geometry(op),
    )
}
