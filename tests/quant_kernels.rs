//! Every kernel for products with quantised matrices on every adapter, not only those that the planner would choose
//! there: exact activations, and those that are rounded to 8 bits.

mod forced;

use std::process::ExitCode;
use std::sync::Arc;

use backend_api::desc::{Matrix, QuantMatmulDesc, QuantMatrix};
use backend_api::quant::QuantFormat;
use backend_api::{ComputeBackend, DType, MathMode};
use backend_webgpu::WebGpuBackend;
use conformance::{Case, quant_products};
use forced::Device;
use libtest_mimic::{Failed, Trial};
use suites::Sample;

fn main() -> ExitCode {
    forced::run(kernels)
}

/// A test for each kernel with the device's sample of the products; where a device can't run it, another makes the products.
fn kernels(device: &Arc<Device>) -> Vec<Trial> {
    let names = WebGpuBackend::quant_matmul_kernels().into_iter();
    let tensor_cores = forced::has_tensor_cores(&device.backend);
    let names = names.filter(|name| tensor_cores || name != "skinny_cooperative");
    let sample = device.sample();
    names
        .map(|kernel| device.trial(&kernel.clone(), move |backend| check(backend, &kernel, sample)))
        .collect()
}

fn check(backend: &WebGpuBackend, kernel: &str, sample: Sample) -> Result<(), Failed> {
    let math = if kernel.ends_with("+int8") { MathMode::Int8 } else { MathMode::Standard };
    let cases: Vec<Case> = quant_products(math).into_iter().filter(|case| sample.has(&case.path())).collect();
    backend.force_quant_matmul(Some(kernel))?;
    let outcome = is_used(backend, kernel, math).and_then(|()| forced::check(backend, &cases));
    backend.force_quant_matmul(None)?;
    outcome
}

/// Whether the kernel makes products that suit it, and integers are multiplied in their mode alone.
fn is_used(backend: &WebGpuBackend, kernel: &str, math: MathMode) -> Result<(), Failed> {
    let file = format!("quant/{}", kernel.trim_end_matches("+int8"));
    let expected = if math == MathMode::Int8 { format!("quant/quantize_rows, {file}") } else { file };
    // Each workgroup has a test of each format before it is used on tensor cores: of one row and several, short and long.
    let groups = [(16, false), (32, false), (32, true)];
    let groups = groups.map(|(group, zero_points)| QuantFormat::U4 { group, zero_points });
    let shapes = [1, 2, 9, 35].into_iter().flat_map(|m| [512, 2048, 4096].map(|k| [m, k]));
    let suited: Vec<_> = match kernel {
        "skinny_cooperative" => {
            let formats = QuantFormat::GGUF.into_iter().chain(groups);
            formats.flat_map(|format| shapes.clone().map(move |shape| (format, shape))).collect()
        }
        _ => vec![(QuantFormat::Q8_0, [1, 128])],
    };
    for (format, [m, k]) in suited {
        let [used, exact] = explain(backend, kernel, format, [m, k], math)?;
        // Subgroups of one size, of 8 or 32, aren't everywhere.
        let is_optional = kernel.starts_with("decode_subgroup");
        if exact.contains("quantize") || used != expected && !is_optional {
            let shape = format!("{m} rows of {k} by {format}");
            return Err(format!("{used} is used for {shape}, {math:?}, and {exact} otherwise").into());
        }
    }
    Ok(())
}

/// What makes a product in this mode and with exact activations.
fn explain(
    backend: &WebGpuBackend,
    kernel: &str,
    format: QuantFormat,
    [m, k]: [usize; 2],
    math: MathMode,
) -> Result<[String; 2], Failed> {
    const N: usize = 8;
    let dtype = if kernel == "skinny_cooperative" { DType::F16 } else { DType::F32 };
    let ptrs =
        [m * k * dtype.size(), format.bytes(N, k)?, m * N * dtype.size()].map(|bytes| backend.alloc(bytes));
    let [a, b, c] = ptrs;
    let [a, b, c] = [a?, b?, c?];
    let product = |math| {
        let [a, c] = [(a, k), (c, N)].map(|(ptr, ld)| Matrix::new(ptr, dtype, ld));
        backend.explain_quant_matmul(
            &QuantMatmulDesc::new(m, a, QuantMatrix::new(b, format, N, k), c).with_math(math),
        )
    };
    let explained = [product(math)?, product(MathMode::Standard)?];
    [a, b, c].iter().try_for_each(|&ptr| backend.free(ptr))?;
    Ok(explained)
}
