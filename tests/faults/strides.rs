//! Strides that lead nowhere, because there is one row or there are no columns, may be any number; those that lead
//! farther than a kernel counts give what they should, or `Limit` with nothing changed.

use backend_api::desc::{
    ConvBackwardDataDesc, ConvBackwardFilterDesc, ConvDesc, ConvShape, ExpertMatmulDesc, ImageShape, Matrix,
    PoolBackwardDesc, PoolDesc, PoolOp, PoolShape, QuantMatrix, QuantizeRowsDesc, Window,
};
use backend_api::kv::KvFormat;
use backend_api::quant::QuantFormat;
use backend_api::{BackendResult, ComputeBackend, DType, ErrorKind};
use suites::BackendUnderTest;

pub(crate) fn run(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = tested.backend()?;
    experts_without_columns(backend)
        .and_then(|()| a_row_of_a_cache(backend))
        .map_err(|error| error.to_string())?;
    // Of windows of one position over an image of one pixel, the ninth begins at 2³² or at 2²⁹.
    [1 << 29, 1 << 26].into_iter().try_for_each(|stride| windows_far_behind_an_image(backend, stride))
}

/// Windows over an image of one pixel, which the first of nine meets and the others don't.
fn windows_far_behind_an_image(backend: &dyn ComputeBackend, stride: usize) -> Result<(), String> {
    const PLACES: usize = 9;
    const F32: DType = DType::F32;
    let window = Window::new([1, 1]).with_stride([1, stride]);
    let window = window.with_asymmetric_padding([0, 0], [0, (PLACES - 1) * stride]);
    let pixel = ImageShape::nchw([1, 1, 1, 1]);
    let (conv, pool) = (ConvShape::new(pixel, 1, window), PoolShape::new(pixel, [1, PLACES], window));
    let averages = |input, output| PoolDesc::new(PoolOp::Average, F32, input, output, pool);
    let maxima = |input, output| PoolDesc::new(PoolOp::Max, F32, input, output, pool);
    let of_first = |first: f32, others: f32| {
        let mut all = vec![others; PLACES];
        all[0] = first;
        all
    };
    // The gradients of the nine places, of which the pixel is under the first.
    let gradients: Vec<f32> = (2..).take(PLACES).map(|i| i as f32).collect();
    let [image, filter] = [[5.0f32], [3.0]];
    let read = |ptr: u64, n: usize| -> BackendResult<Vec<f32>> {
        let mut numbers = vec![0.0f32; n];
        backend.copy_dtoh(bytemuck::cast_slice_mut(&mut numbers), ptr)?;
        Ok(numbers)
    };
    type Call<'a> = Box<dyn Fn([u64; 3], u64) -> BackendResult<()> + 'a>;
    let calls: [(&str, Vec<f32>, Call<'_>); 7] = [
        (
            "conv2d",
            of_first(15.0, 0.0),
            Box::new(|[x, w, _], y| backend.conv2d(&ConvDesc::new(F32, x, w, y, conv))),
        ),
        (
            "conv2d_backward_data",
            vec![6.0],
            Box::new(|[_, w, dy], dx| {
                backend.conv2d_backward_data(&ConvBackwardDataDesc::new(F32, w, dy, dx, conv))
            }),
        ),
        (
            "conv2d_backward_filter",
            vec![10.0],
            Box::new(|[x, _, dy], dw| {
                backend.conv2d_backward_filter(&ConvBackwardFilterDesc::new(F32, x, dy, dw, conv))
            }),
        ),
        (
            "pool2d, Max",
            of_first(5.0, f32::NEG_INFINITY),
            Box::new(|[x, ..], y| backend.pool2d(&maxima(x, y))),
        ),
        ("pool2d, Average", of_first(5.0, f32::NAN), Box::new(|[x, ..], y| backend.pool2d(&averages(x, y)))),
        (
            "pool2d_backward, Max",
            vec![2.0],
            Box::new(|[x, _, dy], dx| backend.pool2d_backward(&PoolBackwardDesc::of(&maxima(x, 0), dy, dx))),
        ),
        (
            "pool2d_backward, Average",
            vec![2.0],
            Box::new(|[x, _, dy], dx| {
                backend.pool2d_backward(&PoolBackwardDesc::of(&averages(x, 0), dy, dx))
            }),
        ),
    ];
    for (name, expected, call) in calls {
        let fails = |error: backend_api::BackendError| format!("{name}, stride {stride}: {error:?}");
        let place = |numbers: &[f32]| -> BackendResult<u64> {
            let ptr = backend.alloc(size_of_val(numbers))?;
            backend.copy_htod(ptr, bytemuck::cast_slice(numbers))?;
            Ok(ptr)
        };
        let before = vec![77.0; expected.len()];
        let inputs = [place(&image), place(&filter), place(&gradients)];
        let [x, w, dy] = inputs;
        let inputs = [x.map_err(fails)?, w.map_err(fails)?, dy.map_err(fails)?];
        let output = place(&before).map_err(fails)?;
        let wanted = match call(inputs, output) {
            Ok(()) => expected,
            Err(error) if error.kind() == ErrorKind::Limit => before,
            Err(error) => return Err(fails(error)),
        };
        let found = read(output, wanted.len()).map_err(fails)?;
        let is_equal = |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan());
        if !found.iter().zip(&wanted).all(is_equal) {
            return Err(format!("{name}, stride {stride}: {found:?}, not {wanted:?}"));
        }
        inputs.into_iter().chain([output]).try_for_each(|ptr| backend.free(ptr)).map_err(fails)?;
    }
    Ok(())
}

/// Products without columns are 0.
fn experts_without_columns(backend: &dyn ComputeBackend) -> BackendResult<()> {
    let [a, b, indices] = [(); 3].map(|()| backend.alloc_zeroed(64));
    let (a, b, indices, c) = (a?, b?, indices?, backend.alloc(24)?);
    backend.copy_htod(c, &[0xff; 24])?;
    let matrix = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
    let stack = QuantMatrix::new(b, QuantFormat::Q4_0, 4, 0);
    backend.expert_matmul(&ExpertMatmulDesc::new(
        [3, 1, 2],
        matrix(a, usize::MAX),
        stack,
        indices,
        matrix(c, 2),
    ))?;
    let mut bytes = [1; 24];
    backend.copy_dtoh(&mut bytes, c)?;
    assert_eq!(bytes, [0; 24]);
    [a, b, indices, c].into_iter().try_for_each(|ptr| backend.free(ptr))
}

/// Ones have the scale 1/127 and quants of 127.
fn a_row_of_a_cache(backend: &dyn ComputeBackend) -> BackendResult<()> {
    let (source, cache) = (backend.alloc(4 * 32)?, backend.alloc(KvFormat::BLOCK_BYTES)?);
    backend.fill(source, DType::F32, 32, 1.0)?;
    let source_rows = Matrix::new(source, DType::F32, usize::MAX);
    backend
        .quantize_rows(&QuantizeRowsDesc::new(source_rows, cache, 1, 32, 1).with_stride(usize::MAX - 31))?;
    let mut bytes = [0; KvFormat::BLOCK_BYTES];
    backend.copy_dtoh(&mut bytes, cache)?;
    assert_eq!(bytes.iter().filter(|&&byte| byte == 127).count(), 32);
    [source, cache].into_iter().try_for_each(|ptr| backend.free(ptr))
}
