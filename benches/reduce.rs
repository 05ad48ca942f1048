//! Reductions: rows, columns and one long vector.
//!
//! `cargo bench --bench reduce`; `COMPUTE_BACKEND=webgpu:0` chooses a device.

use backend_api::desc::{ReduceDesc, TensorDesc};
use backend_api::{DType, ReduceOp};
use benches::rows::Bench;

fn main() {
    let mut bench = Bench::open();
    let (rows, columns) = (bench.size(16_384, 64), bench.size(4096, 256));
    let (many, channels) = (bench.size(1_000_000, 500), bench.size(1024, 32));
    let whole = rows * columns;
    for dtype in [DType::F32, DType::F16] {
        if !bench.supports(dtype) {
            continue;
        }
        let input = bench.subject.operand(dtype, whole);
        let output = bench.subject.operand(DType::F32, many.max(columns * channels));
        let odd = [whole - 1];
        let lines: [(&str, ReduceOp, &[usize], &[usize]); 10] = [
            ("axis_1", ReduceOp::Sum, &[rows, columns], &[1]),
            ("axis_0", ReduceOp::Sum, &[rows, columns], &[0]),
            ("vector", ReduceOp::Sum, &[whole], &[0]),
            ("odd_vector", ReduceOp::Sum, &odd, &[0]),
            ("short_rows", ReduceOp::Sum, &[many, 32], &[1]),
            ("middle", ReduceOp::Sum, &[rows / 64, 64, columns], &[1]),
            ("channels", ReduceOp::Mean, &[rows / 64, 64, columns], &[0, 2]),
            ("max_axis_1", ReduceOp::Max, &[rows, columns], &[1]),
            ("arg_max_axis_1", ReduceOp::ArgMax, &[rows, columns], &[1]),
            ("log_sum_exp_axis_1", ReduceOp::LogSumExp, &[rows, columns], &[1]),
        ];
        for (name, op, shape, axes) in lines {
            let numbers: usize = shape.iter().product();
            if numbers > whole {
                continue;
            }
            let desc = ReduceDesc::new(op, TensorDesc::packed(input, dtype, shape), axes, output);
            bench.measure("reduce", name, dtype, numbers, |backend| backend.reduce_ext(&desc));
        }
        bench.subject.free(&[input, output]);
    }
    bench.finish();
}
