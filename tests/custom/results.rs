//! What kernels write.

use std::thread;

use backend_api::{BackendResult, BinaryOp, ComputeBackend, DType, ErrorKind, UnaryOp};
use backend_webgpu::{BindingAccess, KernelDesc, ParamSpace, ProfileOptions, WebGpuBackend};
use libtest_mimic::Failed;

use super::{expect, read, still_works, upload};

/// What an output holds before.
const STALE: u32 = 0x7fc0_1234;

const AXPY: &str = "
struct Params { alpha: f32, n: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
@compute @workgroup_size(64) fn axpy(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params.n { y[id.x] += params.alpha * x[id.x]; }
}";

fn axpy_params(alpha: f32, n: u32) -> Vec<u8> {
    [alpha.to_le_bytes(), n.to_le_bytes()].concat()
}

/// Each launch has the parameters of its own, as uniforms and where the device has them as immediates.
pub(super) fn parameters(backend: &WebGpuBackend) -> Result<(), Failed> {
    let immediates = backend.device().ok_or("closed")?.features().contains(wgpu::Features::IMMEDIATES);
    let uniform = "@group(0) @binding(2) var<uniform>";
    let mut texts = vec![AXPY.to_owned(), AXPY.replace(uniform, "@group(3) @binding(7) var<uniform>")];
    if immediates {
        texts.push(AXPY.replace(uniform, "var<immediate>"));
    }
    for text in texts {
        let kernel = backend.kernel(&KernelDesc::new("axpy", text))?;
        let params = kernel.params().ok_or("no parameters")?;
        expect("bytes", &params.bytes, &8)?;
        let fields: Vec<_> =
            params.fields.iter().map(|f| (f.name.as_str(), f.ty.as_str(), f.offset)).collect();
        expect("fields", &fields, &vec![("alpha", "f32", 0), ("n", "u32", 4)])?;
        let x = upload(backend, &(0..1000).map(|i| i as f32).collect::<Vec<_>>())?;
        let y = upload(backend, &vec![1.0_f32; 1000])?;
        let grid = kernel.grid_for([1000, 1, 1]);
        expect("grid", &grid, &[16, 1, 1])?;
        // More launches than a batch has, each with other parameters.
        for n in 0..300 {
            backend.launch(&kernel, &[x, y], &axpy_params(1.0, 3 * n), grid)?;
        }
        let count = |i: u32| (0..300).filter(|n| i < 3 * n).count();
        let want: Vec<f32> = (0..1000_u32).map(|i| 1.0 + (count(i) as u32 * i) as f32).collect();
        expect("y", &read::<f32>(backend, y, 1000)?, &want)?;
        backend.free(x)?;
        backend.free(y)?;
    }
    Ok(still_works(backend)?)
}

/// Structures with an array at the end, atomics, vectors of three, and buffers in no order.
pub(super) fn structures(backend: &WebGpuBackend) -> Result<(), Failed> {
    let text = "
        struct Histogram { total: atomic<u32>, counts: array<atomic<u32>> }
        @group(1) @binding(3) var<storage, read_write> histogram: Histogram;
        @group(0) @binding(9) var<storage, read_write> sums: array<vec3<f32>, 2>;
        @group(0) @binding(4) var<storage, read> data: array<vec2<u32>>;
        @compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x >= arrayLength(&data) { return; }
            atomicAdd(&histogram.total, 1u);
            atomicAdd(&histogram.counts[data[id.x].y % arrayLength(&histogram.counts)], data[id.x].x);
            if id.x < 2u { sums[id.x] = vec3<f32>(data[id.x].xyx); }
        }";
    let kernel = backend.kernel(&KernelDesc::new("histogram", text))?;
    let found: Vec<_> = kernel
        .bindings()
        .iter()
        .map(|b| (b.name.as_str(), b.ty.as_str(), b.element_bytes, b.min_bytes, b.runtime_sized, b.access))
        .collect();
    use BindingAccess::{Read, ReadWrite};
    let want = vec![
        ("data", "array<vec2<u32>>", 8, 8, true, Read),
        ("sums", "array<vec3<f32>, 2>", 16, 32, false, ReadWrite),
        ("histogram", "Histogram", 4, 8, true, ReadWrite),
    ];
    expect("bindings", &found, &want)?;
    let data = upload(backend, &(0..100_u32).flat_map(|i| [i, i * 7]).collect::<Vec<_>>())?;
    let sums = upload(backend, &[STALE; 8])?;
    let histogram = upload(backend, &[0_u32; 11])?;
    backend.launch(&kernel, &[data, sums, histogram], &[], [4, 1, 1])?;
    let mut want = vec![0; 11];
    want[0] = 100;
    for i in 0..100 {
        want[1 + (i * 7 % 10) as usize] += i;
    }
    expect("histogram", &read::<u32>(backend, histogram, 11)?, &want)?;
    let found = read::<f32>(backend, sums, 8)?;
    expect("sums", &[&found[..3], &found[4..7]].concat(), &vec![0.0, 0.0, 0.0, 1.0, 7.0, 1.0])?;
    [data, sums, histogram].into_iter().try_for_each(|ptr| backend.free(ptr))?;
    Ok(())
}

/// Workgroup memory begins as zeros, barriers order it, and all of a grid runs.
pub(super) fn workgroups(backend: &WebGpuBackend) -> Result<(), Failed> {
    let text = "
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> sums: array<u32>;
        var<workgroup> tile: array<u32, 64>;
        var<workgroup> untouched: array<u32, 64>;
        @compute @workgroup_size(8, 4, 2) fn main(
            @builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>,
            @builtin(num_workgroups) groups: vec3<u32>) {
            let g = (group.z * groups.y + group.y) * groups.x + group.x;
            tile[i] = x[g * 64u + i] + untouched[i];
            workgroupBarrier();
            for (var half = 32u; half > 0u; half /= 2u) {
                if i < half { tile[i] += tile[i + half]; }
                workgroupBarrier();
            }
            if i == 0u { sums[g] = tile[0]; }
        }";
    let kernel = backend.kernel(&KernelDesc::new("sums", text))?;
    expect("workgroup size", &kernel.workgroup_size(), &[8, 4, 2])?;
    expect("workgroup bytes", &kernel.workgroup_bytes(), &512)?;
    let numbers: Vec<u32> = (0..64 * 30).map(|i| i * i % 1009).collect();
    let x = upload(backend, &numbers)?;
    let sums = upload(backend, &[STALE; 31])?;
    backend.launch(&kernel, &[x, sums], &[], [5, 3, 2])?;
    let mut want: Vec<u32> = numbers.chunks(64).map(|tile| tile.iter().sum()).collect();
    want.push(STALE);
    expect("sums", &read::<u32>(backend, sums, 31)?, &want)?;
    [x, sums].into_iter().try_for_each(|ptr| backend.free(ptr))?;
    Ok(())
}

/// Constants by name and number size the workgroup and its memory.
pub(super) fn constants(backend: &WebGpuBackend) -> Result<(), Failed> {
    let text = "
        override N: u32;
        @id(5) override factor: f32 = 0.5;
        override negate: bool = false;
        @group(0) @binding(0) var<storage, read_write> out: array<f32>;
        var<workgroup> tile: array<f32, N * 4u>;
        @compute @workgroup_size(N) fn main(@builtin(local_invocation_index) i: u32) {
            tile[i * 4u] = select(factor, -factor, negate) * f32(i);
            workgroupBarrier();
            out[i] = tile[(N - 1u - i) * 4u];
        }";
    let desc = KernelDesc::new("constants", text).with_constant("N", 16.0);
    let kernels = [
        (desc.clone(), 0.5),
        (desc.clone().with_constant("5", 3.0), 3.0),
        (desc.clone().with_constant("5", 3.0).with_constant("negate", 1.0), -3.0),
    ];
    for (desc, factor) in kernels {
        let kernel = backend.kernel(&desc)?;
        expect("size", &(kernel.workgroup_size(), kernel.workgroup_bytes()), &([16, 1, 1], 256))?;
        let out = upload(backend, &[STALE; 16])?;
        backend.launch(&kernel, &[out], &[], [1, 1, 1])?;
        let want: Vec<f32> = (0..16).map(|i| factor * (15 - i) as f32).collect();
        expect("out", &read::<f32>(backend, out, 16)?, &want)?;
        backend.free(out)?;
    }
    for (desc, what) in [
        (desc.clone().with_constant("N", 1e5), "a workgroup of 100,000"),
        (desc.clone().with_constant("N", -1.0), "a negative one"),
        (desc.clone().with_constant("N", f64::NAN), "NaN"),
        (desc.clone().with_constant("M", 1.0), "an unknown name"),
        (desc.with_constant("factor", 1.0), "a name in place of the number"),
    ] {
        if backend.kernel(&desc).is_ok() {
            return Err(format!("{what} is taken for right").into());
        }
    }
    Ok(still_works(backend)?)
}

/// One text with two entry points, each with bindings of its own.
pub(super) fn groups(backend: &WebGpuBackend) -> Result<(), Failed> {
    let text = "
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @group(1) @binding(0) var<storage, read_write> z: array<f32>;
        @group(1) @binding(1) var<uniform> scale: f32;
        @compute @workgroup_size(4) fn first(@builtin(global_invocation_id) id: vec3<u32>) {
            y[id.x] = x[id.x] + 1.0;
        }
        @compute @workgroup_size(2) fn second(@builtin(global_invocation_id) id: vec3<u32>) {
            z[id.x] = y[id.x] * scale;
        }";
    // A name is anything.
    let desc = KernelDesc::new("a name\0with a zero, and 🦀", text);
    let first = backend.kernel(&desc.clone().with_entry_point("first"))?;
    let second = backend.kernel(&desc.with_entry_point("second"))?;
    expect("warnings", &first.report().warnings, &vec![])?;
    expect("bindings", &[first.bindings().len(), second.bindings().len()], &[2, 2])?;
    expect("parameters", &second.params().map(|p| p.space), &Some(ParamSpace::Uniform))?;
    let x = upload(backend, &[1.0_f32, 2.0, 3.0, 4.0])?;
    let (y, z) = (upload(backend, &[STALE; 4])?, upload(backend, &[STALE; 4])?);
    backend.launch(&first, &[x, y], &[], [1, 1, 1])?;
    // `second` declares y as read_write too, so the order is y, z.
    backend.launch(&second, &[y, z], &10.0_f32.to_le_bytes(), [2, 1, 1])?;
    expect("z", &read::<f32>(backend, z, 4)?, &vec![20.0, 30.0, 40.0, 50.0])?;
    [x, y, z].into_iter().try_for_each(|ptr| backend.free(ptr))?;
    Ok(())
}

/// Kernels and built-in operations, uploads and reads keep their order.
pub(super) fn order(backend: &WebGpuBackend) -> Result<(), Failed> {
    let kernel = backend.kernel(&KernelDesc::new("axpy", AXPY))?;
    let x = upload(backend, &[1.0_f32; 64])?;
    let y = upload(backend, &[0.0_f32; 64])?;
    let mut want = 0.0_f32;
    for turn in 0..200_u32 {
        let factor = (turn % 5) as f32;
        backend.launch(&kernel, &[x, y], &axpy_params(factor, 64), [1, 1, 1])?;
        want += factor;
        if turn % 3 == 0 {
            backend.unary(UnaryOp::Neg, y, y, 64)?;
            want = -want;
        }
        if turn % 7 == 0 {
            backend.binary(BinaryOp::Add, y, x, y, 64)?;
            want += 1.0;
        }
        if turn % 50 == 49 {
            expect("y on the way", &read::<f32>(backend, y, 64)?, &vec![want; 64])?;
        }
        if turn % 60 == 59 {
            backend.fill(y, DType::F32, 64, 2.0)?;
            want = 2.0;
        }
    }
    drop(kernel);
    expect("y", &read::<f32>(backend, y, 64)?, &vec![want; 64])?;
    [x, y].into_iter().try_for_each(|ptr| backend.free(ptr))?;
    Ok(())
}

/// Threads compile, launch and drop kernels side by side.
pub(super) fn threads(backend: &WebGpuBackend) -> Result<(), Failed> {
    let shared = backend.kernel(&KernelDesc::new("axpy", AXPY))?;
    let work = |thread: u32| -> BackendResult<Vec<f32>> {
        let own = backend.kernel(&KernelDesc::new(format!("axpy {thread}"), AXPY))?;
        let x = upload(backend, &[1.0_f32; 32])?;
        let y = upload(backend, &[0.0_f32; 32])?;
        for turn in 0..50 {
            let kernel = if turn % 2 == 0 { &own } else { &shared };
            backend.launch(kernel, &[x, y], &axpy_params(thread as f32, 32), [1, 1, 1])?;
        }
        drop(own);
        let found = read::<f32>(backend, y, 32)?;
        backend.free(x)?;
        backend.free(y)?;
        Ok(found)
    };
    thread::scope(|scope| {
        let running: Vec<_> = (1..5).map(|thread| (thread, scope.spawn(move || work(thread)))).collect();
        for (thread, running) in running {
            let found = running.join().map_err(|_| format!("thread {thread} panicked"))??;
            expect("a thread's y", &found, &vec![50.0 * thread as f32; 32])?;
        }
        Ok(())
    })
}

/// Captured launches, with parameters as uniforms, as immediates where there are some, and without any, among
/// built-in operations, whose parameters may be of the other kind.
pub(super) fn captured(backend: &WebGpuBackend) -> Result<(), Failed> {
    let immediates = backend.device().ok_or("closed")?.features().contains(wgpu::Features::IMMEDIATES);
    let as_immediates = AXPY.replace("@group(0) @binding(2) var<uniform>", "var<immediate>");
    let doubled = "@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&y) { y[id.x] *= 2.0; }
}";
    let axpy = backend.kernel(&KernelDesc::new("axpy", AXPY))?;
    let also = backend.kernel(&KernelDesc::new("axpy", if immediates { &as_immediates } else { AXPY }))?;
    let double = backend.kernel(&KernelDesc::new("double", doubled))?;
    let (x, y) = (upload(backend, &[1.0_f32; 100])?, upload(backend, &[0.0_f32; 100])?);
    let mut refused = false;
    let graph = backend.capture_with(|recorded| {
        recorded.launch(&axpy, &[x, y], &axpy_params(2.0, 100), [2, 1, 1])?;
        recorded.unary(UnaryOp::Neg, y, y, 100)?;
        recorded.launch(&also, &[x, y], &axpy_params(3.0, 50), [2, 1, 1])?;
        recorded.launch(&double, &[y], &[], [2, 1, 1])?;
        let measured = recorded.profile(&double, &[y], &[], [2, 1, 1], &ProfileOptions::default());
        refused = measured.err().map(|error| error.kind()) == Some(ErrorKind::Capturing);
        recorded.binary(BinaryOp::Add, x, y, y, 100)
    })?;
    expect("whether a measurement was refused", &refused, &true)?;
    let (mut first, mut second) = (0.0_f32, 0.0_f32);
    for _ in 0..3 {
        backend.replay(graph)?;
        first = 2.0 * (3.0 - (first + 2.0)) + 1.0;
        second = 2.0 * -(second + 2.0) + 1.0;
    }
    let expected = [vec![first; 50], vec![second; 50]].concat();
    expect("y after three replays", &read::<f32>(backend, y, 100)?, &expected)?;
    backend.free_graph(graph)?;
    backend.free(x)?;
    backend.free(y)?;
    still_works(backend)?;
    Ok(())
}
