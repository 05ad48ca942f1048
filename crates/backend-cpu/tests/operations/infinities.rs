//! Gradients of convolutions beside padding.

use backend_api::desc::{ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvShape, ImageShape, Window};
use backend_api::{BackendResult, ComputeBackend as _, DType};
use backend_cpu::CpuBackend;

use crate::{download, upload};

/// The gradients of one image of 3×3 pixels with respect to its pixels and to a filter of 3×3 taps, where the first
/// weight and the first gradient are infinite and all else is 1.
fn gradients(stride: usize) -> BackendResult<[Vec<f32>; 2]> {
    let backend = CpuBackend::new();
    let window = Window::new([3, 3]).with_padding([1, 1]).with_stride([stride; 2]);
    let shape = ConvShape::new(ImageShape::nchw([1, 1, 3, 3]), 1, window);
    let mut unbounded = [1f32; 9];
    unbounded[0] = f32::INFINITY;
    let [input, filter, one, infinite] =
        [[0.0; 9], [0.0; 9], [1.0; 9], unbounded].map(|numbers| upload(&backend, &numbers));
    backend.conv2d_backward_data(&ConvBackwardDataDesc::new(DType::F32, infinite, one, input, shape))?;
    backend.conv2d_backward_filter(&ConvBackwardFilterDesc::new(DType::F32, one, infinite, filter, shape))?;
    Ok([input, filter].map(|ptr| download(&backend, ptr, 9)))
}

#[test]
fn infinities_reach_what_they_are_multiplied_with() {
    const INF: f32 = f32::INFINITY;
    // Pixel (y, x) meets the first weight by output (y + 1, x + 1), which the last row and column lack; the first
    // output meets no pixel by the taps of the first row and column.
    let [input, filter] = gradients(1).unwrap();
    assert_eq!(input, [INF, INF, 4.0, INF, INF, 6.0, 4.0, 6.0, 4.0]);
    assert_eq!(filter, [4.0, 6.0, 4.0, 6.0, INF, INF, 4.0, INF, INF]);
    // With a stride of two there are 2×2 outputs, and pixel (1, 1) alone meets the first weight.
    let [input, filter] = gradients(2).unwrap();
    assert_eq!(input, [1.0, 2.0, 1.0, 2.0, INF, 2.0, 1.0, 2.0, 1.0]);
    assert_eq!(filter, [1.0, 2.0, 1.0, 2.0, INF, INF, 1.0, INF, INF]);
}
