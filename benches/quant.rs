//! Products with quantised matrices: the shapes of language models of 0.5, 1 and 8 billion parameters, for one
//! token, a few and many; lookups and dequantisation.
//!
//! `cargo bench --bench quant`; `COMPUTE_BACKEND=webgpu:0` chooses a device. Of products, the bytes are those
//! of the quantised matrix: with few rows, reading it is what takes the time. Lines with `+int8` are of activations that
//! are rounded to 8 bits, by the kernel of that name, with the launch that rounds them.

use backend_api::desc::{DequantizeDesc, Matrix, QuantGatherDesc, QuantMatmulDesc, QuantMatrix, RmsNorm};
use backend_api::quant::QuantFormat;
use backend_api::{DType, Gate, MathMode};
use benches::Subject;
use benches::rows::Bench;

const U4: QuantFormat = QuantFormat::U4 { group: 128, zero_points: true };

/// A matrix of random words.
fn matrix(subject: &Subject, format: QuantFormat, [n, k]: [usize; 2]) -> QuantMatrix {
    let bytes = format.bytes(n, k).expect("whole blocks");
    // f32 in [−1, 1) have scales of f16 in their upper halves and any bits in the lower; the exponents of Mxfp4 may be any.
    QuantMatrix::new(subject.operand(DType::F32, bytes / 4), format, n, k)
}

fn product(bench: &mut Bench, format: QuantFormat, dtype: DType, shape: [usize; 3]) {
    product_by(bench, "", MathMode::Standard, format, dtype, shape);
}

/// Activations of 8 bits, by a kernel whether or not the planner would choose it; on the CPU by what it has.
fn rounded(bench: &mut Bench, kernel: &str, format: QuantFormat, shape: [usize; 3]) {
    force(bench, Some(kernel));
    product_by(bench, &format!("{kernel}_"), MathMode::Int8, format, DType::F32, shape);
    force(bench, None);
}

fn force(bench: &Bench, kernel: Option<&str>) {
    if let Some(webgpu) = bench.subject.webgpu() {
        webgpu.force_quant_matmul(kernel).expect("there is such a kernel");
    }
}

fn product_by(
    bench: &mut Bench,
    way: &str,
    math: MathMode,
    format: QuantFormat,
    dtype: DType,
    [m, n, k]: [usize; 3],
) {
    let b = matrix(&bench.subject, format, [n, k]);
    let operand = |rows, columns| Matrix::new(bench.subject.operand(dtype, rows * columns), dtype, columns);
    let (a, c) = (operand(m, k), operand(m, n));
    let desc = QuantMatmulDesc::new(m, a, b, c).with_math(math);
    let words = format.bytes(n, k).expect("whole blocks") / dtype.size();
    let name = format!("{way}{}_{m}x{n}x{k}", format.name());
    bench.measure("quant_matmul", &name, dtype, words, |backend| backend.quant_matmul(&desc));
    bench.subject.free(&[a.ptr, b.ptr, c.ptr]);
}

/// The first half of a decoder's feed-forward network, whose `n` results are made of 2n columns: with a norm of
/// its rows, with a gate, and with both.
fn gated(bench: &mut Bench, format: QuantFormat, dtype: DType, [m, n, k]: [usize; 3]) {
    let b = matrix(&bench.subject, format, [2 * n, k]);
    let operand = |rows, columns| Matrix::new(bench.subject.operand(dtype, rows * columns), dtype, columns);
    let (a, c, wide) = (operand(m, k), operand(m, n), operand(m, 2 * n));
    let weight = bench.subject.operand(dtype, k);
    let norm = RmsNorm::new(weight, 1e-5);
    let plain = QuantMatmulDesc::new(m, a, b, wide);
    let gated = QuantMatmulDesc::new(m, a, b, c).with_gate(Gate::Swiglu);
    let words = format.bytes(2 * n, k).expect("whole blocks") / dtype.size();
    let ways = [
        ("plain", plain),
        ("norm", plain.with_norm(norm)),
        ("gate", gated),
        ("norm_gate", gated.with_norm(norm)),
    ];
    for (way, desc) in ways {
        let name = format!("{}_{way}_{m}x{}x{k}", format.name(), 2 * n);
        bench.measure("quant_matmul", &name, dtype, words, |backend| backend.quant_matmul(&desc));
    }
    // In one launch, whether or not the planner would choose it.
    force(bench, Some("skinny_cooperative"));
    let name = format!("skinny_cooperative_{}_norm_gate_{m}x{}x{k}", format.name(), 2 * n);
    let desc = gated.with_norm(norm);
    bench.measure("quant_matmul", &name, dtype, words, |backend| backend.quant_matmul(&desc));
    force(bench, None);
    bench.subject.free(&[a.ptr, b.ptr, c.ptr, wide.ptr, weight]);
}

fn rows(bench: &mut Bench, format: QuantFormat, [n, k, count]: [usize; 3]) {
    let (table, dtype) = (matrix(&bench.subject, format, [n, k]), DType::F32);
    let [output, indices] = [n * k, count].map(|elements| bench.subject.operand(dtype, elements));
    bench.subject.backend().fill(indices, DType::U32, count, 7.0).expect("the operation succeeds");
    let all = DequantizeDesc::new(table, Matrix::new(output, dtype, k));
    let some = QuantGatherDesc::new(dtype, table, indices, output, count);
    let name = format!("{}_{n}x{k}", format.name());
    bench.measure("dequantize", &name, dtype, n * k, |backend| backend.dequantize(&all));
    let name = format!("{}_{count}x{k}", format.name());
    bench.measure("quant_gather", &name, dtype, count * k, |backend| backend.quant_gather(&some));
    bench.subject.free(&[table.ptr, output, indices]);
}

fn main() {
    let mut bench = Bench::open();
    let [hidden, inner, narrow] = [bench.size(4096, 512), bench.size(14_336, 1024), bench.size(2048, 256)];
    let many = bench.size(512, 40);
    let types = [DType::F32, DType::F16].into_iter().filter(|&dtype| bench.subject.supports(dtype));
    let types: Vec<_> = types.collect();
    for format in QuantFormat::GGUF.into_iter().chain([U4]) {
        for &dtype in &types {
            for m in [1, 2, 4, 8, 16, many] {
                product(&mut bench, format, dtype, [m, hidden, hidden]);
            }
            product(&mut bench, format, dtype, [1, inner, hidden]);
            product(&mut bench, format, dtype, [1, hidden, inner]);
            product(&mut bench, format, dtype, [1, narrow, narrow]);
            for m in [1, many] {
                gated(&mut bench, format, dtype, [m, inner, hidden]);
            }
            for [n, k] in [[2 * hidden, narrow], [narrow, 2 * hidden], [narrow, narrow]] {
                product(&mut bench, format, dtype, [many, n, k]);
            }
        }
        for m in [1, 2, 4, 8, 16] {
            rounded(&mut bench, "decode_subgroup+int8", format, [m, hidden, hidden]);
        }
        rounded(&mut bench, "decode_subgroup+int8", format, [1, inner, hidden]);
        rounded(&mut bench, "decode_subgroup+int8", format, [1, hidden, inner]);
        for m in [1, 8] {
            rounded(&mut bench, "decode+int8", format, [m, hidden, hidden]);
        }
        rows(&mut bench, format, [hidden, hidden, 64]);
    }
    // No multiple of 256.
    for format in [QuantFormat::Q4_0, QuantFormat::Q8_0] {
        product(&mut bench, format, DType::F32, [1, 896, 896]);
    }
    bench.finish();
}
