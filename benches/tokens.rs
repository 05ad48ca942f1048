//! What follows the logits of a language model, and what goes into its cache: top-k, sorting, sampling, the most probable
//! token, the largest logit and the logarithm of the sum of exponentials, counters, and rows that are assigned by index.
//!
//! `cargo bench --bench tokens`; `COMPUTE_BACKEND=webgpu:0` chooses a device.

use backend_api::desc::{BinaryDesc, IndexShape, ReduceDesc, SampleDesc, ScatterDesc, TensorDesc, TopKDesc};
use backend_api::{BinaryOp, DType, ReduceOp, ScatterOp};
use benches::rows::Bench;

fn main() {
    let mut bench = Bench::open();
    let vocabulary = bench.size(131_072, 4096);
    let (cache, width) = (bench.size(8192, 512), bench.size(1024, 64));
    for dtype in [DType::F32, DType::F16] {
        if !bench.supports(dtype) {
            continue;
        }
        let logits = bench.subject.operand(dtype, vocabulary);
        let found = bench.subject.operand(DType::F32, vocabulary);
        for (name, k) in [("top_1", 1), ("top_40", 40), ("top_1000", 1000), ("argsort", vocabulary)] {
            let desc = TopKDesc::new(dtype, logits, found, 1, vocabulary, k);
            bench.measure("top_k", name, dtype, vocabulary, |backend| backend.top_k(&desc));
        }
        let all = SampleDesc::new(dtype, logits, found, 1, vocabulary, 1);
        let few = all.with_temperature(0.8).with_top_k(40).with_top_p(0.95).with_min_p(0.05);
        for (name, desc) in [("top_40", few), ("all", all)] {
            bench.measure("sample", name, dtype, vocabulary, |backend| backend.sample(&desc));
        }
        for (name, op) in
            [("arg_max", ReduceOp::ArgMax), ("max", ReduceOp::Max), ("log_sum_exp", ReduceOp::LogSumExp)]
        {
            let shape = [1, vocabulary];
            let desc = ReduceDesc::new(op, TensorDesc::packed(logits, dtype, &shape), &[1], found);
            bench.measure("reduce", name, dtype, vocabulary, |backend| backend.reduce_ext(&desc));
        }
        bench.subject.free(&[logits, found]);

        let table = bench.subject.operand(dtype, cache * width);
        for (name, count) in [("append_1", 1), ("append_512", bench.size(512, 32))] {
            let source = bench.subject.operand(DType::F32, count * width);
            let indices = bench.subject.backend().alloc(4 * count).expect("memory of the device");
            let places: Vec<u8> = (0..count as u32).flat_map(u32::to_le_bytes).collect();
            bench.subject.backend().copy_htod(indices, &places).expect("memory of the device");
            let shape = IndexShape { rows: cache, columns: width, count };
            let desc = ScatterDesc::new(ScatterOp::Assign, dtype, table, indices, source, shape)
                .with_source_dtype(DType::F32);
            bench.measure("scatter", name, dtype, count * width, |backend| backend.scatter(&desc));
            bench.subject.free(&[source, indices]);
        }
        bench.subject.free(&[table]);
    }
    let counters = bench.subject.words(0, 3);
    let vector = TensorDesc::packed(counters, DType::U32, &[3]);
    let desc = BinaryDesc::new(BinaryOp::Add, vector, 1.0, vector);
    bench.measure("counters", "add_1", DType::U32, 3, |backend| backend.binary_ext(&desc));
    bench.subject.free(&[counters]);
    bench.finish();
}
