//! Buffers that are imported again while only recorded work uses them.

use backend_api::{ComputeBackend, DType, ErrorKind, UnaryOp};
use backend_webgpu::WebGpuBackend;
use suites::BackendUnderTest;

use super::loss;

/// Elements of the buffers.
const N: usize = 1024;

/// How a recorded read of a buffer comes about whose handles are gone when it is imported again.
#[derive(Clone, Copy, Debug)]
enum Known {
    Import,
    Export,
    ExportOnceRead,
    Graph,
}

/// A buffer that is imported again, before what was recorded with its earlier handles is submitted, is what it was.
pub(crate) fn run(tested: &BackendUnderTest) -> Result<(), String> {
    for known in [Known::Import, Known::Export, Known::ExportOnceRead, Known::Graph] {
        order_of_a_known_buffer(tested, known).map_err(|error| format!("{known:?}: {error}"))?;
    }
    overlap_of_a_known_buffer(tested)
}

fn order_of_a_known_buffer(tested: &BackendUnderTest, known: Known) -> Result<(), String> {
    let told = |error| format!("{error:?}");
    let mut backend = WebGpuBackend::select(loss::index(tested)?);
    backend.init().map_err(told)?;
    let export = |ptr| backend.export_buffer(ptr).map(|(buffer, ..)| buffer).map_err(told);
    let mut read = backend.alloc(4 * N).map_err(told)?;
    let output = backend.alloc(4 * N).map_err(told)?;
    let mut buffer = if let Known::ExportOnceRead = known { None } else { Some(export(read)?) };
    if let (Known::Import, Some(buffer)) = (known, &buffer) {
        backend.free(read).map_err(told)?;
        read = backend.import_buffer(buffer.clone()).map_err(told)?;
    }
    backend.copy_htod(read, bytemuck::cast_slice(&[1f32; N])).map_err(told)?;
    backend.synchronize().map_err(told)?;
    if let Known::Graph = known {
        let graph =
            backend.capture(&mut |backend| backend.unary(UnaryOp::Neg, read, output, N)).map_err(told)?;
        backend.replay(graph).map_err(told)?;
        backend.free_graph(graph).map_err(told)?;
    } else {
        backend.unary(UnaryOp::Neg, read, output, N).map_err(told)?;
    }
    if let Known::ExportOnceRead = known {
        buffer = Some(export(read)?);
    }
    backend.free(read).map_err(told)?;
    let again = backend.import_buffer(buffer.ok_or("no buffer")?).map_err(told)?;
    backend.copy_htod(again, bytemuck::cast_slice(&[9f32; N])).map_err(told)?;
    let mut got = vec![0f32; N];
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut got), output).map_err(told)?;
    if got.iter().any(|&x| x != -1.0) {
        return Err(format!("an upload overtook a read through a freed handle: {}", got[0]));
    }
    Ok(())
}

/// Two imports of a buffer that is still written through a freed handle are one memory.
fn overlap_of_a_known_buffer(tested: &BackendUnderTest) -> Result<(), String> {
    let told = |error| format!("{error:?}");
    let mut backend = WebGpuBackend::select(loss::index(tested)?);
    backend.init().map_err(told)?;
    let own = backend.alloc(4 * N).map_err(told)?;
    let (buffer, _, _) = backend.export_buffer(own).map_err(told)?;
    backend.fill(own, DType::F32, N, 1.0).map_err(told)?;
    backend.free(own).map_err(told)?;
    let first = backend.import_buffer(buffer.clone()).map_err(told)?;
    let second = backend.import_buffer(buffer).map_err(told)?;
    let shifted = backend.view(second, 4, 4 * N - 4).map_err(told)?;
    match backend.unary(UnaryOp::Neg, first, shifted, N - 1) {
        Err(error) if error.kind() == ErrorKind::Overlap => Ok(()),
        other => Err(format!("overlap over two imports of a buffer gave {other:?}")),
    }
}
