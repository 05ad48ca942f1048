//! What a launch refuses, and what it takes.

use std::time::Duration;

use backend_api::{BackendError, BackendResult, ComputeBackend, DType, ErrorKind};
use backend_webgpu::{BuiltIn, Clock, Expected, Kernel, KernelDesc, ProfileOptions, WebGpuBackend};
use libtest_mimic::Failed;

use super::{expect, read, still_works, upload};

const COPY: &str = "
@group(0) @binding(0) var<storage, read> x: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> length: array<u32, 2>;
@group(0) @binding(3) var<uniform> plus: u32;
@compute @workgroup_size(16) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < min(arrayLength(&x), arrayLength(&y)) { y[id.x] = x[id.x] + plus; }
    if id.x == 0u { length[0] = arrayLength(&x); length[1] = arrayLength(&y); }
}";

const PLUS: [u8; 4] = 100_u32.to_le_bytes();

fn copy(backend: &WebGpuBackend) -> BackendResult<Kernel> {
    backend.kernel(&KernelDesc::new("copy", COPY))
}

fn kind<T>(result: BackendResult<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

pub(super) fn arguments(backend: &WebGpuBackend) -> Result<(), Failed> {
    let kernel = copy(backend)?;
    let x = upload(backend, &[1_u32, 2, 3, 4])?;
    let y = upload(backend, &[7_u32; 4])?;
    let length = upload(backend, &[7_u32; 2])?;
    let [short, odd] = [backend.alloc(4)?, backend.alloc(18)?];
    let freed = backend.alloc(16)?;
    backend.free(freed)?;
    let good = [x, y, length];
    let one = [1, 1, 1];
    type Bad = (&'static str, Vec<u64>, Vec<u8>, [u32; 3], ErrorKind);
    let bad: Vec<Bad> = vec![
        ("no handles", vec![], PLUS.to_vec(), one, ErrorKind::Shape),
        ("too few handles", good[..2].to_vec(), PLUS.to_vec(), one, ErrorKind::Shape),
        ("too many handles", vec![x, y, length, length], PLUS.to_vec(), one, ErrorKind::Shape),
        ("no parameters", good.to_vec(), vec![], one, ErrorKind::Shape),
        ("short parameters", good.to_vec(), vec![0; 3], one, ErrorKind::Shape),
        ("long parameters", good.to_vec(), vec![0; 1000], one, ErrorKind::Shape),
        ("a freed handle", vec![freed, y, length], PLUS.to_vec(), one, ErrorKind::InvalidHandle),
        ("an invented handle", vec![x, 12345, length], PLUS.to_vec(), one, ErrorKind::InvalidHandle),
        ("no handle", vec![x, y, 0], PLUS.to_vec(), one, ErrorKind::InvalidHandle),
        ("less than an element", vec![short, y, length], PLUS.to_vec(), one, ErrorKind::BufferTooSmall),
        ("less than the array", vec![x, y, short], PLUS.to_vec(), one, ErrorKind::BufferTooSmall),
        ("half a word that is written", vec![x, odd, length], PLUS.to_vec(), one, ErrorKind::Shape),
        ("a long grid", good.to_vec(), PLUS.to_vec(), [65_536, 1, 1], ErrorKind::Limit),
        ("2^32 workgroups", good.to_vec(), PLUS.to_vec(), [32_768, 32_768, 4], ErrorKind::Limit),
        ("a large grid", good.to_vec(), PLUS.to_vec(), [65_535; 3], ErrorKind::Limit),
        ("a deep grid", good.to_vec(), PLUS.to_vec(), [1, 1, u32::MAX], ErrorKind::Limit),
    ];
    for (what, handles, params, grid, want) in bad {
        let found = kind(backend.launch(&kernel, &handles, &params, grid));
        expect(what, &found, &Some(want))?;
        // A grid of nothing is checked as well.
        if want != ErrorKind::Limit {
            expect(what, &kind(backend.launch(&kernel, &handles, &params, [0, 1, 1])), &Some(want))?;
        }
    }
    let error = backend.launch(&kernel, &[x, short, length], &PLUS, one);
    let want = BackendError::BufferTooSmall { op: "launch", arg: "bindings[1]", have: 4, need: 8 };
    expect("the error's fields", &error, &Err(want))?;
    backend.launch(&kernel, &good, &PLUS, [0, 1, 1])?;
    expect("y after all of that", &read::<u32>(backend, y, 4)?, &vec![7; 4])?;
    backend.launch(&kernel, &good, &PLUS, one)?;
    expect("y", &read::<u32>(backend, y, 4)?, &vec![101, 102, 103, 104])?;
    expect("length", &read::<u32>(backend, length, 2)?, &vec![2, 2])?;
    [x, y, length, short, odd].into_iter().try_for_each(|ptr| backend.free(ptr))?;
    Ok(still_works(backend)?)
}

pub(super) fn overlaps(backend: &WebGpuBackend) -> Result<(), Failed> {
    let kernel = copy(backend)?;
    let all = upload(backend, &(0..1024_u32).collect::<Vec<_>>())?;
    let length = upload(backend, &[7_u32; 2])?;
    let [low, across, high, far] = [(0, 1024), (512, 1024), (1024, 1024), (3072, 1024)]
        .map(|(offset, bytes)| backend.view(all, offset, bytes));
    let [low, across, high, far] = [low?, across?, high?, far?];
    let launch = |handles: [u64; 3]| backend.launch(&kernel, &handles, &PLUS, [8, 1, 1]);
    for (what, handles) in [
        ("in place", [all, all, length]),
        ("across", [low, across, length]),
        ("within", [all, high, length]),
        ("what is written twice", [low, high, high]),
    ] {
        expect(what, &kind(launch(handles)), &Some(ErrorKind::Overlap))?;
    }
    // Views apart from each other in one buffer: the one that is read is copied.
    launch([low, high, length])?;
    let found = read::<u32>(backend, all, 1024)?;
    let want: Vec<u32> = (0..1024).map(|i| if (256..512).contains(&i) { i - 256 + 100 } else { i }).collect();
    expect("all", &found, &want)?;
    // Two views that are written.
    launch([length, high, far])?;
    expect("lengths", &read::<u32>(backend, far, 2)?, &vec![1, 128])?;
    [low, across, high, far, all, length].into_iter().try_for_each(|ptr| backend.free(ptr))?;
    Ok(())
}

/// Of the last word of a view that ends within it, the kernel sees zeros, not what was in the memory of the copy.
pub(super) fn part_of_a_word(backend: &WebGpuBackend) -> Result<(), Failed> {
    const TEXT: &str = "
        @group(0) @binding(0) var<storage, read> x: array<u32>;
        @group(0) @binding(1) var<storage, read_write> y: array<u32, 3>;
        @compute @workgroup_size(1) fn main() { y[0] = x[0]; y[1] = x[1]; y[2] = arrayLength(&x); }";
    let kernel = backend.kernel(&KernelDesc::new("part_of_a_word", TEXT))?;
    let x = upload(backend, &[0x1111_1111_u32; 4])?;
    let y = upload(backend, &[7_u32; 3])?;
    // Memory for the copy that has been used.
    let used: Vec<u64> = (0..4).map(|_| upload(backend, &[u32::MAX; 2])).collect::<Result<_, _>>()?;
    used.into_iter().try_for_each(|ptr| backend.free(ptr))?;
    let view = backend.view(x, 0, 6)?;
    backend.launch(&kernel, &[view, y], &[], [1, 1, 1])?;
    expect("y", &read::<u32>(backend, y, 3)?, &vec![0x1111_1111, 0x1111, 2])?;
    [view, x, y].into_iter().try_for_each(|ptr| backend.free(ptr))?;
    Ok(())
}

pub(super) fn views(backend: &WebGpuBackend) -> Result<(), Failed> {
    let kernel = copy(backend)?;
    let alignment = backend.device().ok_or("closed")?.limits().min_storage_buffer_offset_alignment as usize;
    let x = upload(backend, &(0..512_u32).collect::<Vec<_>>())?;
    let y = upload(backend, &vec![7_u32; 512])?;
    let length = upload(backend, &[7_u32; 2])?;
    // What is read may begin anywhere and end anywhere.
    for (offset, bytes) in [(0, 64), (4, 64), (alignment, 64), (alignment + 12, 40), (12, 70), (2, 8)] {
        let source = backend.view(x, offset, bytes)?;
        let target = backend.view(y, alignment, 64)?;
        backend.fill(y, DType::U32, 512, 7.0)?;
        backend.launch(&kernel, &[source, target, length], &PLUS, [1, 1, 1])?;
        let memory: Vec<u8> = (0..512_u32).flat_map(u32::to_le_bytes).collect();
        let word = |i: usize| {
            let bytes = [0, 1, 2, 3].map(|byte| memory[offset + 4 * i + byte]);
            u32::from_le_bytes(bytes) + 100
        };
        // The last element of a view that ends within it is there, with bytes that nobody gave.
        let whole = bytes / 8 * 2;
        let found = read::<u32>(backend, y, 512)?;
        let start = alignment / 4;
        let want: Vec<u32> = (0..whole.min(16)).map(word).collect();
        expect("what is copied", &found[start..start + want.len()].to_vec(), &want)?;
        let rest = found[..start].iter().chain(&found[start + 16..]);
        expect("changes outside", &rest.filter(|&&word| word != 7).count(), &0)?;
        [source, target].into_iter().try_for_each(|ptr| backend.free(ptr))?;
    }
    // What is written begins at the device's alignment.
    let target = backend.view(y, 4, 64)?;
    let error = backend.launch(&kernel, &[x, target, length], &PLUS, [1, 1, 1]);
    let want = BackendError::Misaligned { op: "launch", arg: "bindings[1]", offset: 4, align: alignment };
    expect("a written view off the alignment", &error, &Err(want))?;
    [x, target, y, length].into_iter().try_for_each(|ptr| backend.free(ptr))?;
    Ok(())
}

/// A kernel is its device's.
pub(super) fn home(backend: &WebGpuBackend) -> Result<(), Failed> {
    let info = backend.device_info()?;
    let selector = info.selector.trim_start_matches("webgpu:");
    let mut other = WebGpuBackend::select(selector);
    expect("closed", &kind(copy(&other)), &Some(ErrorKind::NotInitialized))?;
    other.init()?;
    let kernel = copy(&other)?;
    let good = |backend: &WebGpuBackend| -> BackendResult<[u64; 3]> {
        Ok([upload(backend, &[1_u32, 2])?, upload(backend, &[0_u32; 2])?, upload(backend, &[0_u32; 2])?])
    };
    let handles = good(backend)?;
    let elsewhere = kind(backend.launch(&kernel, &handles, &PLUS, [1, 1, 1]));
    expect("a kernel of another backend", &elsewhere, &Some(ErrorKind::InvalidHandle))?;
    handles.into_iter().try_for_each(|ptr| backend.free(ptr))?;

    let handles = good(&other)?;
    other.launch(&kernel, &handles, &PLUS, [1, 1, 1])?;
    expect("y", &read::<u32>(&other, handles[1], 2)?, &vec![101, 102])?;
    other.device().ok_or("closed")?.destroy();
    let start = std::time::Instant::now();
    while kind(other.launch(&kernel, &handles, &PLUS, [1, 1, 1])) != Some(ErrorKind::DeviceLost) {
        if start.elapsed() > Duration::from_secs(5) {
            return Err("the loss isn't told".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    expect("compiling on a lost device", &kind(copy(&other)), &Some(ErrorKind::DeviceLost))?;
    other.init()?;
    let handles = good(&other)?;
    let stale = kind(other.launch(&kernel, &handles, &PLUS, [1, 1, 1]));
    expect("a kernel of a lost device", &stale, &Some(ErrorKind::InvalidHandle))?;
    let kernel = copy(&other)?;
    other.launch(&kernel, &handles, &PLUS, [1, 1, 1])?;
    expect("y", &read::<u32>(&other, handles[1], 2)?, &vec![101, 102])?;
    // The kernel outlives its device.
    drop(other);
    drop(kernel);
    Ok(())
}

/// Bindings of exactly the least bytes are taken by the device too, captured as well, and a word less isn't.
pub(super) fn least_bytes(backend: &WebGpuBackend) -> Result<(), Failed> {
    // What a binding is, the bytes up to its elements and of each, and one of the words of its first element.
    let kinds = [
        ("array<u32>", "", 0, 4, "[0]"),
        ("array<vec2<u32>>", "", 0, 8, "[0].y"),
        ("array<vec3<u32>>", "", 0, 16, "[0].z"),
        ("array<mat3x3<f32>>", "", 0, 48, "[0][2].z"),
        ("S", "struct S { n: u32, last: array<u32> }", 4, 4, ".last[0]"),
        ("S", "struct S { n: vec3<u32>, last: array<u32> }", 12, 4, ".last[0]"),
        ("S", "struct S { n: vec4<u32>, last: array<vec3<u32>> }", 16, 16, ".last[0].y"),
        ("S", "struct E { a: vec3<u32>, b: u32 } struct S { n: u32, last: array<E> }", 16, 16, ".last[0].b"),
        (
            "S",
            "struct E { a: u32, b: array<u32, 3> } struct S { n: array<u32, 5>, last: array<E> }",
            20,
            16,
            ".last[0].b[2]",
        ),
        (
            "S",
            "struct E { a: vec2<u32>, b: u32 } struct S { n: u32, m: u32, last: array<E> }",
            8,
            16,
            ".last[0].b",
        ),
        ("array<atomic<u32>>", "", 0, 4, ""),
        ("S", "struct S { n: u32, v: vec3<u32> }", 32, 0, ".v.z"),
        ("vec3<u32>", "", 12, 0, ".z"),
    ];
    for (ty, structs, before, element, path) in kinds {
        let is_atomic = ty.contains("atomic");
        let access = if is_atomic { "read_write" } else { "read" };
        let word = if is_atomic { "atomicLoad(&x[0])".to_owned() } else { format!("u32(x{path})") };
        let length = match (element, ty) {
            (0, _) => "1u",
            (_, "S") => "arrayLength(&x.last)",
            _ => "arrayLength(&x)",
        };
        let text = format!(
            "{structs}
            @group(0) @binding(0) var<storage, {access}> x: {ty};
            @group(0) @binding(1) var<storage, read_write> y: array<u32, 2>;
            @compute @workgroup_size(1) fn main() {{ y[0] = {word}; y[1] = {length}; }}"
        );
        let kernel = backend
            .kernel(&KernelDesc::new("least", text))
            .map_err(|error| format!("{ty} {structs}: {error:?}"))?;
        let least = kernel.bindings()[0].min_bytes;
        let what = format!("{ty} {structs}");
        expect(&what, &least, &(before + element))?;
        let [x, y] = [backend.alloc(least + element)?, backend.alloc(8)?];
        backend.fill(x, DType::U32, (least + element) / 4, 0.0)?;
        for (bytes, count) in [(least, 1), (least + element, 1 + u32::from(element > 0))] {
            let view = backend.view(x, 0, bytes)?;
            backend.fill(y, DType::U32, 2, 7.0)?;
            backend.launch(&kernel, &[view, y], &[], [1, 1, 1])?;
            expect(&what, &read::<u32>(backend, y, 2)?, &vec![0, count])?;
            backend.fill(y, DType::U32, 2, 7.0)?;
            let graph =
                backend.capture_with(|backend| backend.launch(&kernel, &[view, y], &[], [1, 1, 1]))?;
            backend.free(view)?;
            backend.replay(graph)?;
            expect(&what, &read::<u32>(backend, y, 2)?, &vec![0, count])?;
            backend.free_graph(graph)?;
        }
        let short = backend.view(x, 0, least - 4)?;
        let refused = kind(backend.launch(&kernel, &[short, y], &[], [1, 1, 1]));
        expect(&what, &refused, &Some(ErrorKind::BufferTooSmall))?;
        [short, x, y].into_iter().try_for_each(|ptr| backend.free(ptr))?;
    }
    Ok(still_works(backend)?)
}

pub(super) fn profile(backend: &WebGpuBackend) -> Result<(), Failed> {
    let text = "
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> y: array<f32>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < arrayLength(&x) { y[id.x] += 2.0 * x[id.x]; }
        }";
    let kernel = backend.kernel(&KernelDesc::new("double", text))?;
    let numbers: Vec<f32> = (0..4096).map(|i| i as f32).collect();
    let (x, y) = (upload(backend, &numbers)?, upload(backend, &[0.0_f32; 4096])?);
    let mut options = ProfileOptions::default();
    options.warm_up = Duration::from_millis(20);
    options.samples = 11;
    options.bytes = Some(3.0 * 4.0 * 4096.0);
    options.flops = Some(2.0 * 4096.0);
    // As after one launch, though many follow; one element is off.
    let mut want: Vec<f32> = numbers.iter().map(|x| 2.0 * x).collect();
    want[100] += 3.0;
    options.expected =
        vec![Expected::new(1, DType::F32, bytemuck::cast_slice(&want).to_vec()).within(0.0, 1e-3)];
    let profile = backend.profile(&kernel, &[x, y], &[], [64, 1, 1], &options)?;
    let has_timestamps = backend.capabilities()?.timestamps;
    expect("clock", &profile.clock, &if has_timestamps { Clock::Device } else { Clock::Host })?;
    let ordered =
        profile.min <= profile.p10 && profile.p10 <= profile.median && profile.median <= profile.p90;
    if !ordered
        || profile.p90 > profile.max
        || profile.min < 0.0
        || profile.samples == 0
        || profile.samples > 11
    {
        return Err(format!("{profile:?}").into());
    }
    if profile.median > 0.0 {
        expect("GB/s", &profile.gb_per_s, &Some(12.0 * 4096.0 / profile.median * 1e-9))?;
    }
    let comparison = profile.comparisons.first().ok_or("nothing was compared")?;
    expect("elements", &(comparison.elements, comparison.wrong, comparison.worst_index), &(4096, 1, 100))?;
    expect("the worst", &(comparison.expected, comparison.found), &(203.0, 200.0))?;
    // A wrong expectation is refused before anything is launched.
    let before = read::<f32>(backend, y, 4096)?;
    options.expected[0].bytes.push(0);
    let part = kind(backend.profile(&kernel, &[x, y], &[], [64, 1, 1], &options));
    expect("a part of an element", &part, &Some(ErrorKind::Shape))?;
    options.expected[0].binding = 2;
    let missing = kind(backend.profile(&kernel, &[x, y], &[], [64, 1, 1], &options));
    expect("a binding that isn't there", &missing, &Some(ErrorKind::Shape))?;
    options.expected = vec![Expected::new(1, DType::F32, vec![0; 4 * 4097])];
    let long = kind(backend.profile(&kernel, &[x, y], &[], [64, 1, 1], &options));
    expect("more than the binding has", &long, &Some(ErrorKind::BufferTooSmall))?;
    expect("y after the refusals", &read::<f32>(backend, y, 4096)?, &before)?;
    [x, y].into_iter().try_for_each(|ptr| backend.free(ptr))?;
    Ok(())
}

pub(super) fn specs(backend: &WebGpuBackend) -> Result<(), Failed> {
    let (specs, info) = (backend.device_specs()?, backend.device_info()?);
    expect("name", &specs.name, &info.name)?;
    let device = backend.device().ok_or("closed")?;
    let limit = |name: &str| specs.limits.get(name).copied();
    let invocations = device.limits().max_compute_invocations_per_workgroup;
    expect("invocations", &limit("max_compute_invocations_per_workgroup"), &Some(invocations.into()))?;
    let has_f16 = device.features().contains(wgpu::Features::SHADER_F16);
    expect("f16", &specs.features.iter().any(|name| name == "SHADER_F16"), &has_f16)?;
    let from = ["driver", "tuning", "guess"].contains(&specs.compute_units_from);
    expect("compute units", &(specs.compute_units > 0 && from), &true)?;
    // Vulkan tells it, and no other interface.
    expect("memory", &specs.memory.map(|bytes| bytes >= 64 << 20), &(specs.api == "Vulkan").then_some(true))?;
    let of_f32 = |built_in: &&BuiltIn| built_in.operation.contains("f32");
    if let Some(refused) =
        specs.built_in.iter().filter(of_f32).find(|built_in| !built_in.kernel.contains('/'))
    {
        return Err(format!("{refused:?} names no kernel").into());
    }
    let [f32, f16] = [&specs.built_in[0], &specs.built_in[1]];
    if !f32.operation.contains("1024×1024×1024") || f32.kernel.contains("needs") {
        return Err(format!("{f32:?}").into());
    }
    expect("f16 products", &f16.kernel.contains("needs a device with SHADER_F16"), &!has_f16)?;
    Ok(still_works(backend)?)
}
