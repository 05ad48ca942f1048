//! What the page's thread pays for an operation that is recorded, one that is replayed, and a dispatch of bare WebGPU.

use backend_api::{BackendError, ComputeBackend, UnaryOp};
use backend_webgpu::WebGpuBackend;
use web_time::Instant;

/// Operations of a run.
const OPERATIONS: usize = 600;

/// Runs of which the shortest counts: whatever else the machine does makes a run longer, never shorter.
const ROUNDS: usize = 75;

/// The elements of neighbouring operations differ, and so do their parameters, as they do in a model.
const ELEMENTS: [usize; 3] = [64, 63, 62];

fn text(error: BackendError) -> String {
    format!("{error:?}")
}

/// The most that a replay may cost of recording, unless dispatches alone cost more.
const SHARE: f64 = 1.0 / 3.0;

/// What a replay may cost of bare dispatches, which are the page's calls of WebGPU that it can't do without.
const OF_BARE: f64 = 1.25;

/// Prints microseconds of an operation, and fails where replaying costs more than a third of recording and more than
/// dispatches do.
pub(crate) async fn run() -> Vec<String> {
    match measure().await {
        Ok([recorded, replayed, bare]) => {
            super::log(&format!(
                "replays: recorded {recorded:.2} µs an operation, replayed {replayed:.2} ({:.2} of recording), a dispatch with \
                 two bind groups of bare WebGPU {bare:.2}",
                replayed / recorded
            ));
            if replayed > (SHARE * recorded).max(OF_BARE * bare) {
                return vec![format!(
                    "replays: {replayed:.2} µs are more than a third of {recorded:.2} and {OF_BARE} times the bare {bare:.2}"
                )];
            }
            Vec::new()
        }
        Err(why) => vec![format!("replays: {why}")],
    }
}

async fn measure() -> Result<[f64; 3], String> {
    let mut backend = WebGpuBackend::default();
    backend.init_async().await.map_err(text)?;
    let [x, y] = [backend.alloc(256).map_err(text)?, backend.alloc(256).map_err(text)?];
    let record = |backend: &dyn ComputeBackend| {
        (0..OPERATIONS).try_for_each(|i| {
            let (from, to) = if i % 2 == 0 { (x, y) } else { (y, x) };
            backend.unary(UnaryOp::Abs, from, to, ELEMENTS[i % ELEMENTS.len()])
        })
    };
    backend.warm_up_async(&[&record]).await.map_err(text)?;
    let graph = backend.capture(&mut |backend| record(backend)).map_err(text)?;
    let bare = Bare::new(backend.device().ok_or("there is no device")?);
    let queue = backend.queue().ok_or("there is no queue")?;
    let mut shortest = [f64::INFINITY; 3];
    for round in 0..3 * ROUNDS {
        backend.synchronize_async().await.map_err(text)?;
        let start = Instant::now();
        match round % 3 {
            0 => record(&backend).map_err(text)?,
            1 => backend.replay(graph).map_err(text)?,
            _ => bare.run(queue),
        }
        let took = start.elapsed().as_secs_f64() * 1e6 / OPERATIONS as f64;
        shortest[round % 3] = shortest[round % 3].min(took);
    }
    backend.synchronize_async().await.map_err(text)?;
    backend.free_graph(graph).map_err(text)?;
    Ok(shortest)
}

/// As many dispatches with what they have to have: the tensors and the parameters of each.
struct Bare {
    device: wgpu::Device,
    pipeline: wgpu::ComputePipeline,
    tensors: [wgpu::BindGroup; 2],
    params: wgpu::BindGroup,
}

const SHADER: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(1) @binding(0) var<uniform> n: vec4<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  if id.x < n.x { y[id.x] = abs(x[id.x]); }
}";

/// Bytes of a slot of parameters.
const SLOT: u64 = 256;

impl Bare {
    fn new(device: &wgpu::Device) -> Self {
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(SHADER.into()),
        });
        let entry = |binding, ty, has_dynamic_offset| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: None },
            count: None,
        };
        let storage = |read_only| wgpu::BufferBindingType::Storage { read_only };
        let layout = |entries: &[wgpu::BindGroupLayoutEntry]| {
            device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries })
        };
        let layouts = [
            layout(&[entry(0, storage(true), false), entry(1, storage(false), false)]),
            layout(&[entry(0, wgpu::BufferBindingType::Uniform, true)]),
        ];
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layouts[0]), Some(&layouts[1])],
            immediate_size: 0,
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: None,
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let buffer = |size, usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        let [a, b] = [(); 2].map(|()| buffer(256, wgpu::BufferUsages::STORAGE));
        let slots = buffer(SLOT * ELEMENTS.len() as u64, wgpu::BufferUsages::UNIFORM);
        let group = |layout: &wgpu::BindGroupLayout, resources: &[wgpu::BindingResource<'_>]| {
            let entries: Vec<_> = (0..)
                .zip(resources)
                .map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource: resource.clone() })
                .collect();
            device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries: &entries })
        };
        let tensors = [[&a, &b], [&b, &a]]
            .map(|[from, to]| group(&layouts[0], &[from.as_entire_binding(), to.as_entire_binding()]));
        let size = std::num::NonZeroU64::new(16);
        let slot = wgpu::BufferBinding { buffer: &slots, offset: 0, size };
        let params = group(&layouts[1], &[wgpu::BindingResource::Buffer(slot)]);
        Self { device: device.clone(), pipeline, tensors, params }
    }

    fn run(&self, queue: &wgpu::Queue) {
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&self.pipeline);
            for i in 0..OPERATIONS {
                pass.set_bind_group(0, &self.tensors[i % 2], &[]);
                pass.set_bind_group(1, &self.params, &[(i % ELEMENTS.len()) as u32 * SLOT as u32]);
                pass.dispatch_workgroups(1, 1, 1);
            }
        }
        queue.submit([encoder.finish()]);
    }
}
