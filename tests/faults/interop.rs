//! A device that someone else opened, and buffers that go to and fro.

use backend_api::{BackendError, ComputeBackend, ErrorKind, UnaryOp};
use backend_webgpu::WebGpuBackend;
use suites::BackendUnderTest;

use super::loss::{self, First};
use super::opened::{self, Opened};
use super::program;

/// Elements of the shared buffers.
const N: usize = 1024;

/// Doubles each number.
const DOUBLE: &str = "
    @group(0) @binding(0) var<storage, read_write> x: array<f32>;
    @compute @workgroup_size(64)
    fn main(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&x) { x[id.x] = 2.0 * x[id.x]; }
    }";

/// A device of the adapter under test with nothing but the limits that every device has.
fn foreign_device(tested: &BackendUnderTest) -> Result<Opened, String> {
    opened::open(tested, |adapter| wgpu::DeviceDescriptor {
        required_limits: wgpu::Limits::default().or_worse_values_from(&adapter.limits()),
        ..Default::default()
    })
}

pub(crate) fn from_wgpu(tested: &BackendUnderTest) -> Result<(), String> {
    let (instance, adapter, device, queue) = foreign_device(tested)?;
    let kept = device.clone();
    let mut backend =
        WebGpuBackend::from_wgpu(instance, adapter, device, queue).map_err(|error| format!("{error:?}"))?;
    if !backend.is_initialized() {
        return Err("a backend on an opened device isn't initialised".to_owned());
    }
    backend.init().map_err(|error| format!("init: {error:?}"))?;
    if backend.device() != Some(&kept) {
        return Err("init() replaced a device that works".to_owned());
    }
    program::check(&backend)?;
    let f16 = backend.capabilities().map_err(|error| format!("{error:?}"))?.f16;
    if f16 {
        return Err("f16 is claimed on a device opened without it".to_owned());
    }
    let ptr = backend.alloc(64).map_err(|error| format!("{error:?}"))?;
    match backend.gemm_f16(2, 2, 2, 1.0, ptr, ptr, 0.0, ptr) {
        Err(error) if [ErrorKind::Unsupported, ErrorKind::Overlap].contains(&error.kind()) => {}
        other => return Err(format!("gemm_f16 without f16 gave {other:?}")),
    }
    kept.destroy();
    loss::notice(&backend, ptr, First::Ask)?;
    match backend.free(ptr) {
        Err(error) if error.kind() == ErrorKind::DeviceLost => {}
        other => return Err(format!("free on a destroyed device gave {other:?}")),
    }
    // The backend would open some adapter, and perhaps another one.
    match backend.init() {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
        other => Err(format!("init() after the loss of the caller's device gave {other:?}")),
    }
}

type Lower = fn(&mut wgpu::Limits);

/// Devices with limits below what kernels need, which the driver would refuse when they run.
pub(crate) fn from_wgpu_with_low_limits(tested: &BackendUnderTest) -> Result<(), String> {
    let lowered: [(&str, Lower); 15] = [
        ("workgroups_per_dimension", |limits| limits.max_compute_workgroups_per_dimension = 100),
        ("invocations_per_workgroup", |limits| limits.max_compute_invocations_per_workgroup = 128),
        ("workgroup_storage_size", |limits| limits.max_compute_workgroup_storage_size = 8192),
        ("storage_buffers_per_shader_stage", |limits| limits.max_storage_buffers_per_shader_stage = 4),
        ("buffer_size", |limits| {
            (limits.max_buffer_size, limits.max_storage_buffer_binding_size) = (4096, 4096);
        }),
        ("storage_buffer_binding_size", |limits| limits.max_storage_buffer_binding_size = 4096),
        ("workgroup_size_x", |limits| limits.max_compute_workgroup_size_x = 128),
        ("bindings_per_bind_group", |limits| limits.max_bindings_per_bind_group = 7),
        ("buffers_and_acceleration_structures_per_shader_stage", |limits| {
            limits.max_buffers_and_acceleration_structures_per_shader_stage = 8;
        }),
        ("bind_groups", |limits| limits.max_bind_groups = 1),
        ("max_uniform_buffers_per_shader_stage", |limits| limits.max_uniform_buffers_per_shader_stage = 0),
        ("dynamic_uniform_buffers_per_pipeline_layout", |limits| {
            limits.max_dynamic_uniform_buffers_per_pipeline_layout = 0;
        }),
        ("uniform_buffer_binding_size", |limits| limits.max_uniform_buffer_binding_size = 128),
        ("min_storage_buffer_offset_alignment", |limits| limits.min_storage_buffer_offset_alignment = 512),
        ("min_uniform_buffer_offset_alignment", |limits| limits.min_uniform_buffer_offset_alignment = 512),
    ];
    for (name, lower) in lowered {
        let (instance, adapter, device, queue) = opened::open(tested, |adapter| {
            let mut limits = wgpu::Limits::default().or_worse_values_from(&adapter.limits());
            lower(&mut limits);
            wgpu::DeviceDescriptor { required_limits: limits, ..Default::default() }
        })?;
        match WebGpuBackend::from_wgpu(instance, adapter, device, queue) {
            Err(BackendError::Unsupported { need, .. }) if need.contains(name) => {}
            other => return Err(format!("a low limit of {name} gave {other:?}")),
        }
    }
    Ok(())
}

/// The queue of another device of the same adapter, which has work of its own or none.
pub(crate) fn from_wgpu_with_another_queue(tested: &BackendUnderTest) -> Result<(), String> {
    let (_, _, _other, queue) = foreign_device(tested)?;
    for submissions in [0, 3] {
        let (instance, adapter, device, own) = foreign_device(tested)?;
        (0..submissions).for_each(|_| {
            own.submit([]);
        });
        match WebGpuBackend::from_wgpu(instance, adapter, device, queue.clone()) {
            Err(BackendError::Unsupported { op: "from_wgpu", need }) if need.contains("queue") => {}
            other => return Err(format!("another device's queue gave {other:?}")),
        }
        queue.submit([]);
    }
    // A lost device's own queue isn't taken for another's.
    let (instance, adapter, device, queue) = foreign_device(tested)?;
    device.destroy();
    match WebGpuBackend::from_wgpu(instance, adapter, device, queue) {
        Err(BackendError::Unsupported { need, .. }) => Err(format!("a destroyed device: {need}")),
        _ => Ok(()),
    }
}

/// The backend's work, the caller's own pass over the same memory, and the backend's work again.
pub(crate) fn export_and_import(tested: &BackendUnderTest) -> Result<(), String> {
    let told = |error| format!("{error:?}");
    let mut backend = WebGpuBackend::select(loss::index(tested)?);
    backend.init().map_err(told)?;
    let device = backend.device().ok_or("no device")?.clone();
    let queue = backend.queue().ok_or("no queue")?.clone();
    let numbers: Vec<f32> = (0..N).map(|i| i as f32).collect();

    let imported = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 4 * N as u64,
        usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let from_caller = backend.import_buffer(imported).map_err(told)?;
    let own = backend.alloc(4 * N).map_err(told)?;
    for ptr in [from_caller, own] {
        backend.copy_htod(ptr, bytemuck::cast_slice(&numbers)).map_err(told)?;
        backend.unary(UnaryOp::Neg, ptr, ptr, N).map_err(told)?;
        backend.flush().map_err(told)?;

        let (buffer, offset, len) = backend.export_buffer(ptr).map_err(told)?;
        if len != 4 * N as u64 {
            return Err(format!("export_buffer says {len} bytes, not {}", 4 * N));
        }
        double(&device, &queue, &buffer, offset, len);

        backend.unary(UnaryOp::Abs, ptr, ptr, N).map_err(told)?;
        let mut got = vec![0f32; N];
        backend.copy_dtoh(bytemuck::cast_slice_mut(&mut got), ptr).map_err(told)?;
        if let Some(at) = (0..N).find(|&i| got[i] != 2.0 * numbers[i]) {
            return Err(format!("element {at} is {}, expected {}", got[at], 2.0 * numbers[at]));
        }
    }
    let view = backend.view(own, 1024, 512).map_err(told)?;
    let (_, base, _) = backend.export_buffer(own).map_err(told)?;
    let (_, offset, len) = backend.export_buffer(view).map_err(told)?;
    if (offset, len) != (base + 1024, 512) {
        return Err(format!("a view is exported at {offset} with {len} bytes"));
    }
    for ptr in [view, own, from_caller] {
        backend.free(ptr).map_err(told)?;
    }
    match backend.export_buffer(own) {
        Err(error) if error.kind() == ErrorKind::InvalidHandle => Ok(()),
        other => Err(format!("export of a freed handle gave {other:?}")),
    }
}

fn double(device: &wgpu::Device, queue: &wgpu::Queue, buffer: &wgpu::Buffer, offset: u64, len: u64) {
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(DOUBLE.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: None,
        compilation_options: Default::default(),
        cache: None,
    });
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry {
            binding: 0,
            resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer,
                offset,
                size: wgpu::BufferSize::new(len),
            }),
        }],
    });
    let mut encoder = device.create_command_encoder(&Default::default());
    let mut pass = encoder.begin_compute_pass(&Default::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups((len / 4).div_ceil(64) as u32, 1, 1);
    drop(pass);
    queue.submit([encoder.finish()]);
}

/// Buffers that the backend couldn't use are refused.
pub(crate) fn unfit_buffers(tested: &BackendUnderTest) -> Result<(), String> {
    let mut backend = WebGpuBackend::select(loss::index(tested)?);
    backend.init().map_err(|error| format!("{error:?}"))?;
    let device = backend.device().ok_or("no device")?.clone();
    let all = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let mut unfit: Vec<(u64, wgpu::BufferUsages)> = all.iter().map(|usage| (64, all - usage)).collect();
    unfit.extend([63, 60, 8, 0].map(|size| (size, all)));
    for (size, usage) in unfit {
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage,
            mapped_at_creation: false,
        });
        match backend.import_buffer(buffer) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            other => return Err(format!("import of {size} bytes with {usage:?} gave {other:?}")),
        }
    }
    let buffer = |device: &wgpu::Device, mapped_at_creation| {
        let size = 64;
        device.create_buffer(&wgpu::BufferDescriptor { label: None, size, usage: all, mapped_at_creation })
    };
    let mapped = buffer(&device, true);
    let destroyed = buffer(&device, false);
    destroyed.destroy();
    let adapter = backend.adapter().ok_or("no adapter")?;
    let (other_device, _queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
        required_limits: wgpu::Limits::default().or_worse_values_from(&adapter.limits()),
        ..Default::default()
    }))
    .map_err(|error| format!("the adapter doesn't open again: {error}"))?;
    let foreign = buffer(&other_device, false);
    for (what, buffer, kind) in [
        ("mapped", mapped.clone(), ErrorKind::Unsupported),
        ("destroyed", destroyed, ErrorKind::Driver),
        ("foreign", foreign, ErrorKind::Driver),
    ] {
        match backend.import_buffer(buffer) {
            Err(error) if error.kind() == kind => {}
            other => return Err(format!("import of a {what} buffer gave {other:?}")),
        }
    }
    mapped.unmap();
    let ptr = backend.import_buffer(mapped).map_err(|error| format!("once unmapped: {error:?}"))?;
    backend.free(ptr).map_err(|error| format!("{error:?}"))?;
    program::check(&backend)
}

/// Each way to a buffer leads to the same memory: order and overlap hold between its handles.
pub(crate) fn known_buffers(tested: &BackendUnderTest) -> Result<(), String> {
    let told = |error| format!("{error:?}");
    let mut backend = WebGpuBackend::select(loss::index(tested)?);
    backend.init().map_err(told)?;
    let own = backend.alloc(4 * N).map_err(told)?;
    let output = backend.alloc(4 * N).map_err(told)?;
    let (buffer, _, _) = backend.export_buffer(own).map_err(told)?;
    let again = backend.import_buffer(buffer.clone()).map_err(told)?;
    let ones = vec![1f32; N];
    let nines = vec![9f32; N];
    backend.copy_htod(own, bytemuck::cast_slice(&ones)).map_err(told)?;
    backend.unary(UnaryOp::Neg, own, output, N).map_err(told)?;
    // An upload through the other handle comes after the read.
    backend.copy_htod(again, bytemuck::cast_slice(&nines)).map_err(told)?;
    let mut got = vec![0f32; N];
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut got), output).map_err(told)?;
    if got.iter().any(|&x| x != -1.0) {
        return Err(format!("an upload overtook a read through another handle: {}", got[0]));
    }
    // In place, and overlapping.
    backend.unary(UnaryOp::Neg, own, again, N).map_err(told)?;
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut got), own).map_err(told)?;
    if got.iter().any(|&x| x != -9.0) {
        return Err(format!("in place over two handles of a buffer: {}", got[0]));
    }
    let shifted = backend.view(again, 4, 4 * N - 4).map_err(told)?;
    match backend.unary(UnaryOp::Neg, own, shifted, N - 1) {
        Err(error) if error.kind() == ErrorKind::Overlap => {}
        other => return Err(format!("overlap over two handles of a buffer gave {other:?}")),
    }
    // A freed buffer that the caller still has is not given to anyone else.
    for ptr in [own, again, shifted] {
        backend.free(ptr).map_err(told)?;
    }
    let others: Vec<u64> = (0..4).map(|_| backend.alloc(4 * N)).collect::<Result<_, _>>().map_err(told)?;
    for &ptr in &others {
        if backend.export_buffer(ptr).map_err(told)?.0 == buffer {
            return Err("an exported buffer was allocated again".to_owned());
        }
    }
    let imported = backend.import_buffer(buffer).map_err(told)?;
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut got), imported).map_err(told)?;
    if got.iter().any(|&x| x != -9.0) {
        return Err(format!("a buffer that came back has {}", got[0]));
    }
    program::check(&backend)
}

/// As many bytes as the capabilities say can be asked for, or as some drivers' largest buffer has and a few more: those
/// that set all of a buffer to 0 at once would use up the host's memory.
pub(crate) fn largest_allocation(tested: &BackendUnderTest) -> Result<(), String> {
    let backend = tested.backend()?;
    let most = backend.capabilities().map_err(|error| format!("{error:?}"))?.max_alloc_bytes;
    let asked = most.min(1 << 31);
    match backend.alloc(asked) {
        Ok(ptr) => backend.free(ptr).map_err(|error| format!("{error:?}"))?,
        Err(error) if error.kind() == ErrorKind::OutOfMemory => {}
        Err(error) => return Err(format!("alloc({asked}) gave {error:?}")),
    }
    backend.trim().map_err(|error| format!("{error:?}"))?;
    match backend.alloc(most.saturating_add(1)) {
        Err(error) if error.kind() == ErrorKind::Limit => Ok(()),
        other => Err(format!("one byte more than the largest allocation gave {other:?}")),
    }
}
