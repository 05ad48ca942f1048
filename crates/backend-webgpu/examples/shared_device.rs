//! A renderer and the backend on one device: the backend computes a curve into the renderer's vertex buffer, which draws it
//! without the numbers ever leaving the device. `cargo run --release --example shared_device` prints the picture.

use std::error::Error;

use backend_api::{BinaryOp, ComputeBackend as _, UnaryOp};
use backend_webgpu::WebGpuBackend;

/// Pixels of the picture: a row is 256 bytes, to a multiple of which WebGPU aligns copies of textures.
const WIDTH: u32 = 64;
const HEIGHT: u32 = 24;

/// Points of the curve.
const POINTS: usize = 512;

/// Draws a point at each height, from left to right.
const DRAW: &str = "
@vertex
fn point(@builtin(vertex_index) i: u32, @location(0) height: f32) -> @builtin(position) vec4<f32> {
    return vec4(2.0 * (f32(i) + 0.5) / 512.0 - 1.0, height, 0.0, 1.0);
}

@fragment
fn ink() -> @location(0) vec4<f32> {
    return vec4(1.0);
}
";

fn main() -> Result<(), Box<dyn Error>> {
    // The renderer opens the device, with the limits that the backend is to have.
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))?;
    let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
        required_limits: adapter.limits(),
        ..Default::default()
    }))?;
    println!("{}", adapter.get_info().name);
    let heights = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("heights"),
        size: 4 * POINTS as u64,
        // The last three are what the backend asks for.
        usage: wgpu::BufferUsages::VERTEX
            | wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });

    // The backend fills the renderer's buffer: a sine that fades out.
    let backend = WebGpuBackend::from_wgpu(instance, adapter, device.clone(), queue.clone())?;
    let curve = backend.import_buffer(heights.clone())?;
    let fading = backend.alloc(4 * POINTS)?;
    let place = |i: usize| (i as f32 + 0.5) / POINTS as f32;
    let bytes = |number: fn(f32) -> f32| -> Vec<u8> {
        (0..POINTS).flat_map(|i| number(place(i)).to_le_bytes()).collect()
    };
    backend.copy_htod(curve, &bytes(|x| 20.0 * x))?;
    backend.copy_htod(fading, &bytes(|x| 1.0 - x))?;
    backend.unary(UnaryOp::Sin, curve, curve, POINTS)?;
    backend.binary(BinaryOp::Mul, curve, fading, curve, POINTS)?;
    // Submits what was recorded, so that it comes before what the renderer submits.
    backend.flush()?;

    let pixels = draw(&device, &queue, &heights)?;
    for row in pixels.chunks(4 * WIDTH as usize) {
        let inked = row.chunks(4).map(|pixel| if pixel[0] > 0 { '*' } else { ' ' });
        println!("{}", inked.collect::<String>());
    }
    // The curve begins at 0, rises, and has faded out at the right.
    let is_inked = |row: usize, column: usize| pixels[4 * (row * WIDTH as usize + column)] > 0;
    let rows_of_column =
        |column| (0..HEIGHT as usize).filter(|&row| is_inked(row, column)).collect::<Vec<_>>();
    assert!(rows_of_column(4).iter().any(|&row| row < 4), "the first crest");
    assert!(rows_of_column(63).iter().all(|row| (10..14).contains(row)), "the end is near 0");
    Ok(())
}

/// The picture's pixels, row by row.
fn draw(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    heights: &wgpu::Buffer,
) -> Result<Vec<u8>, Box<dyn Error>> {
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("draw"),
        source: wgpu::ShaderSource::Wgsl(DRAW.into()),
    });
    let format = wgpu::TextureFormat::Rgba8Unorm;
    let pipeline = device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
        label: Some("draw"),
        layout: None,
        vertex: wgpu::VertexState {
            module: &module,
            entry_point: Some("point"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            buffers: &[Some(wgpu::VertexBufferLayout {
                array_stride: 4,
                step_mode: wgpu::VertexStepMode::Vertex,
                attributes: &wgpu::vertex_attr_array![0 => Float32],
            })],
        },
        primitive: wgpu::PrimitiveState {
            topology: wgpu::PrimitiveTopology::PointList,
            ..Default::default()
        },
        depth_stencil: None,
        multisample: wgpu::MultisampleState::default(),
        fragment: Some(wgpu::FragmentState {
            module: &module,
            entry_point: Some("ink"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            targets: &[Some(format.into())],
        }),
        multiview_mask: None,
        cache: None,
    });
    let size = wgpu::Extent3d { width: WIDTH, height: HEIGHT, depth_or_array_layers: 1 };
    let picture = device.create_texture(&wgpu::TextureDescriptor {
        label: Some("picture"),
        size,
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format,
        usage: wgpu::TextureUsages::RENDER_ATTACHMENT | wgpu::TextureUsages::COPY_SRC,
        view_formats: &[],
    });
    let copy = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("copy of the picture"),
        size: u64::from(4 * WIDTH * HEIGHT),
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
        mapped_at_creation: false,
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let view = picture.create_view(&wgpu::TextureViewDescriptor::default());
    let mut pass = encoder.begin_render_pass(&wgpu::RenderPassDescriptor {
        color_attachments: &[Some(wgpu::RenderPassColorAttachment {
            view: &view,
            depth_slice: None,
            resolve_target: None,
            ops: wgpu::Operations {
                load: wgpu::LoadOp::Clear(wgpu::Color::BLACK),
                store: wgpu::StoreOp::Store,
            },
        })],
        ..Default::default()
    });
    pass.set_pipeline(&pipeline);
    pass.set_vertex_buffer(0, heights.slice(..));
    pass.draw(0..POINTS as u32, 0..1);
    drop(pass);
    let layout =
        wgpu::TexelCopyBufferLayout { offset: 0, bytes_per_row: Some(4 * WIDTH), rows_per_image: None };
    let to = wgpu::TexelCopyBufferInfo { buffer: &copy, layout };
    encoder.copy_texture_to_buffer(picture.as_image_copy(), to, size);
    queue.submit([encoder.finish()]);
    copy.map_async(wgpu::MapMode::Read, .., |_| {});
    device.poll(wgpu::PollType::wait_indefinitely())?;
    Ok(copy.get_mapped_range(..)?.to_vec())
}
