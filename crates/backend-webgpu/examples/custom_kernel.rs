//! A kernel of one's own among built-in operations: `cargo run --package backend-webgpu --example custom_kernel`.

use backend_api::{ComputeBackend as _, DType, UnaryOp};
use backend_webgpu::{Expected, KernelDesc, ProfileOptions, WebGpuBackend};

/// The distance of each element to its neighbour, times a factor.
const DISTANCES: &str = "
struct Params { n: u32, factor: f32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

@compute @workgroup_size(64)
fn distances(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if i + 1u < params.n {
        y[i] = params.factor * abs(x[i + 1u] - x[i]);
    }
}
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = WebGpuBackend::open()?;
    let n = 1 << 20;
    let (x, y) = (backend.alloc(4 * n)?, backend.alloc(4 * n)?);
    let numbers: Vec<u8> = (0..n).flat_map(|i| ((i % 100) as f32).to_le_bytes()).collect();
    backend.copy_htod(x, &numbers)?;
    backend.fill(y, DType::F32, n, 0.0)?;

    let kernel = backend.kernel(&KernelDesc::new("distances", DISTANCES))?;
    for binding in kernel.bindings() {
        println!("{}: {} {}", binding.name, binding.access.name(), binding.ty);
    }
    let params = [(n as u32).to_le_bytes(), 0.5_f32.to_le_bytes()].concat();
    let grid = kernel.grid_for([n as u32, 1, 1]);

    // Calls run in their order, the caller's kernels among the built-in ones.
    backend.unary(UnaryOp::Neg, x, x, n)?;
    backend.launch(&kernel, &[x, y], &params, grid)?;
    backend.unary(UnaryOp::Sqrt, y, y, n)?;
    let mut first = [0; 4];
    backend.copy_dtoh(&mut first, y)?;
    println!("√(0.5 · |-1 - 0|) = {}", f32::from_le_bytes(first));

    let mut options = ProfileOptions::default();
    options.bytes = Some(3.0 * 4.0 * n as f64);
    options.expected = vec![Expected::new(1, DType::F32, 0.5_f32.to_le_bytes().to_vec())];
    let profile = backend.profile(&kernel, &[x, y], &params, grid, &options)?;
    println!(
        "{:.1} µs by the {:?}'s clock, {:.1?} GB/s",
        profile.median * 1e6,
        profile.clock,
        profile.gb_per_s
    );
    assert!(profile.comparisons.iter().all(backend_webgpu::Comparison::is_right));

    // What is wrong is an error with its place.
    let wrong = DISTANCES.replace("abs(", "length_of(");
    if let Err(backend_api::BackendError::Kernel { source, .. }) =
        backend.kernel(&KernelDesc::new("wrong", wrong))
    {
        println!("\n{source}");
    }
    Ok(())
}
