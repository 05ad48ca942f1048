//! Windows of convolutions and poolings: strides, dilations, sizes and padding.

use backend_api::desc::{
    ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvTransposeDesc, PoolBackwardDesc, PoolDesc,
    Window,
};

use super::expect::{OVERFLOW, at_least};
use super::operation::Change;

/// A descriptor with a window of 3×2, and strides as long.
pub(super) trait Windowed {
    fn window(&mut self) -> &mut Window;
}

macro_rules! windowed {
    ($($name:ident),+) => {
        $(impl Windowed for $name {
            fn window(&mut self) -> &mut Window {
                &mut self.shape.window
            }
        })+
    };
}

windowed!(
    ConvDesc,
    ConvTransposeDesc,
    ConvBackwardDataDesc,
    ConvBackwardFilterDesc,
    PoolDesc,
    PoolBackwardDesc
);

/// What is wrong with a window wherever it moves.
pub(super) fn changes<D: Windowed>(op: &'static str) -> Vec<Change<D>> {
    vec![
        ("vertical stride 0", at_least(op, "stride", 1, 0), |d| d.window().stride = [0, 2]),
        ("horizontal stride 0", at_least(op, "stride", 1, 0), |d| d.window().stride = [3, 0]),
        ("vertical dilation 0", at_least(op, "dilation", 1, 0), |d| d.window().dilation = [0, 1]),
        ("horizontal dilation 0", at_least(op, "dilation", 1, 0), |d| d.window().dilation = [1, 0]),
        ("window without rows", at_least(op, "extent of the filter", 1, 0), |d| d.window().size = [0, 2]),
        ("window without columns", at_least(op, "extent of the filter", 1, 0), |d| d.window().size = [3, 0]),
        ("dilation usize::MAX", OVERFLOW, |d| d.window().dilation = [usize::MAX, 1]),
        ("padding that overflows", OVERFLOW, |d| {
            (d.window().before, d.window().after) = ([usize::MAX, 0], [1, 0]);
        }),
    ]
}
