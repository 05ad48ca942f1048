//! Captured calls: a replay is the calls, in their order, on what memory holds then.

use backend_api::desc::{
    AttentionDesc, AttentionShape, BinaryDesc, CopyDesc, Distribution, IndexShape, Matrix, QuantizeRowsDesc,
    RandomDesc, ScatterDesc, TensorDesc, UnaryDesc,
};
use backend_api::kv::KvFormat;
use backend_api::{
    BackendError, BackendTranspose, BinaryOp, ComputeBackend, DType, ErrorKind, Operation, ReduceOp,
    ScatterOp, UnaryOp, random,
};

use super::copy_dtod::{expect_bytes, free, free_with_graph, text, upload};
use crate::case::Case;
use crate::device::Device;
use crate::element::encode;

const F32: DType = DType::F32;
const NO: BackendTranspose = BackendTranspose::NoTrans;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::script("capture", "inputs_change_between_replays", |device| Box::pin(changing(device))),
        Case::script("capture", "nothing_runs_in_a_capture", |device| Box::pin(nothing_runs(device))),
        Case::script("capture", "an_empty_graph", |device| Box::pin(empty(device))),
        Case::script("capture", "a_graph_of_1500_operations", |device| Box::pin(long(device))),
        Case::script("capture", "replays_and_calls_in_turns", |device| Box::pin(in_turns(device))),
        Case::script("capture", "freed_handles", |device| Box::pin(freed_handles(device))),
        Case::script("capture", "a_graph_freed_on_its_way", |device| Box::pin(freed_graph(device))),
        Case::script("capture", "a_failed_capture_runs_nothing", |device| Box::pin(failed(device))),
        Case::script("capture", "a_failed_call_is_left_out", |device| Box::pin(left_out(device))),
        Case::script("capture", "calls_on_the_backend_itself", |device| Box::pin(outside(device))),
        Case::script("capture", "a_warm_up_replays_nothing", |device| Box::pin(warmed_up(device))),
        Case::script("capture", "random_numbers_go_on", |device| Box::pin(random_stream(device))),
        Case::script("capture", "a_decode_step", |device| Box::pin(decode(device, F32.into()))),
        Case::script("capture", "a_decode_step_of_q8_0", |device| Box::pin(decode(device, KvFormat::Q8_0))),
    ]
}

fn f32s(values: &[f64]) -> Vec<u8> {
    encode(F32, values)
}

/// Two chains over one input: a product, a sum along its rows, and an element-wise function in place.
async fn changing(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let (n, eye) = (5, (0..25).map(|i| f64::from(u8::from(i % 6 == 0))).collect::<Vec<_>>());
    let [x, e] = [upload(device, &f32s(&[0.0; 25]))?, upload(device, &f32s(&eye))?];
    let [y, sums] = [upload(device, &f32s(&[7.0; 25]))?, upload(device, &f32s(&[7.0; 5]))?];
    let graph = backend.capture(&mut |backend| {
        backend.gemm(NO, NO, n, n, n, 2.0, x, n, e, n, 0.0, y, n)?;
        backend.reduce(ReduceOp::Sum, y, sums, &[n, n], 1)?;
        backend.unary(UnaryOp::Neg, sums, sums, n)
    });
    let graph = graph.map_err(text)?;
    for round in 1..=6 {
        let value = f64::from(round);
        backend.copy_htod(x, &f32s(&[value; 25])).map_err(text)?;
        backend.replay(graph).map_err(text)?;
        // Now and then the next upload meets work that is only recorded.
        if round % 3 == 0 {
            expect_bytes(device, "y", y, &f32s(&[2.0 * value; 25])).await?;
            expect_bytes(device, "the sums", sums, &f32s(&[-10.0 * value; 5])).await?;
        }
    }
    free_with_graph(device, graph, &[x, e, y, sums])
}

async fn nothing_runs(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let x = upload(device, &f32s(&[3.0; 9]))?;
    let graph = backend.capture(&mut |backend| backend.fill(x, F32, 9, 1.0)).map_err(text)?;
    device.synchronize().await.map_err(text)?;
    expect_bytes(device, "x", x, &f32s(&[3.0; 9])).await?;
    backend.free_graph(graph).map_err(text)?;
    expect_bytes(device, "x", x, &f32s(&[3.0; 9])).await?;
    free(device, &[x])
}

async fn empty(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let x = upload(device, &f32s(&[3.0; 9]))?;
    let graph = backend.capture(&mut |backend| backend.unary(UnaryOp::Neg, x, x, 0)).map_err(text)?;
    backend.replay(graph).map_err(text)?;
    expect_bytes(device, "x", x, &f32s(&[3.0; 9])).await?;
    free_with_graph(device, graph, &[x])
}

/// More than a submission takes.
async fn long(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let [one, x] = [upload(device, &f32s(&[1.0; 33]))?, upload(device, &f32s(&[0.0; 33]))?];
    let graph = backend.capture(&mut |backend| {
        (0..1500).try_for_each(|step| match step % 3 {
            2 => backend.unary(UnaryOp::Abs, x, x, 33),
            _ => backend.binary(BinaryOp::Add, x, one, x, 33),
        })
    });
    let graph = graph.map_err(text)?;
    for _ in 0..3 {
        backend.replay(graph).map_err(text)?;
    }
    expect_bytes(device, "x", x, &f32s(&[3000.0; 33])).await?;
    free_with_graph(device, graph, &[one, x])
}

/// x = 2·x + 1 by a graph and a call, over and over.
async fn in_turns(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let [one, x] = [upload(device, &f32s(&[1.0; 7]))?, upload(device, &f32s(&[0.0; 7]))?];
    let double = |backend: &dyn ComputeBackend| backend.binary(BinaryOp::Add, x, x, x, 7);
    let increment = |backend: &dyn ComputeBackend| backend.binary(BinaryOp::Add, x, one, x, 7);
    let doubling = backend.capture(&mut { double }).map_err(text)?;
    let incrementing = backend.capture(&mut { increment }).map_err(text)?;
    for round in 0..20 {
        if round % 2 == 0 { double(backend) } else { backend.replay(doubling) }.map_err(text)?;
        if round % 3 == 0 { increment(backend) } else { backend.replay(incrementing) }.map_err(text)?;
    }
    expect_bytes(device, "x", x, &f32s(&[1_048_575.0; 7])).await?;
    backend.free_graph(doubling).map_err(text)?;
    backend.free_graph(incrementing).map_err(text)?;
    free(device, &[one, x])
}

/// Memory outlives its handles, and what is allocated afterwards is other memory.
async fn freed_handles(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let ones = f32s(&[1.0; 64]);
    let [x, between] = [upload(device, &f32s(&[4.0; 64]))?, upload(device, &ones)?];
    let y = upload(device, &ones)?;
    let graph = backend.capture(&mut |backend| {
        backend.unary(UnaryOp::Sqrt, x, between, 64)?;
        backend.binary(BinaryOp::Add, between, y, y, 64)
    });
    let graph = graph.map_err(text)?;
    free(device, &[x, between])?;
    let others = [upload(device, &ones)?, upload(device, &ones)?, upload(device, &ones)?];
    for _ in 0..4 {
        backend.replay(graph).map_err(text)?;
    }
    expect_bytes(device, "y", y, &f32s(&[9.0; 64])).await?;
    for other in others {
        expect_bytes(device, "memory of others", other, &ones).await?;
    }
    free(device, &[y])?;
    backend.replay(graph).map_err(text)?;
    free_with_graph(device, graph, &others)
}

/// A replay finishes after its graph and its handles are freed, before what uses the memory next.
async fn freed_graph(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let y = upload(device, &f32s(&[0.0; 64]))?;
    for round in 1..=10 {
        let x = upload(device, &f32s(&[f64::from(round); 64]))?;
        let graph = backend.capture(&mut |backend| backend.binary(BinaryOp::Add, x, y, y, 64));
        let graph = graph.map_err(text)?;
        backend.replay(graph).map_err(text)?;
        free_with_graph(device, graph, &[x])?;
        let next = upload(device, &f32s(&[100.0; 64]))?;
        free(device, &[next])?;
    }
    expect_bytes(device, "y", y, &f32s(&[55.0; 64])).await?;
    free(device, &[y])
}

async fn failed(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let x = upload(device, &f32s(&[3.0; 64]))?;
    let refusal = BackendError::NoAdapter { tried: vec!["nothing".to_owned()] };
    let result = backend.capture(&mut |backend| {
        backend.unary(UnaryOp::Neg, x, x, 64)?;
        backend.reduce(ReduceOp::Sum, x, x, &[1, 64], 0)?;
        Err(refusal.clone())
    });
    // A sum in place is no good call, and its error comes first.
    let kind = result.err().map(|error| error.kind());
    if kind != Some(ErrorKind::Overlap) {
        return Err(format!("the capture gave {kind:?}"));
    }
    let result = backend.capture(&mut |backend| {
        backend.unary(UnaryOp::Neg, x, x, 64)?;
        Err(refusal.clone())
    });
    if result != Err(refusal) {
        return Err(format!("the capture gave {result:?}"));
    }
    expect_bytes(device, "x", x, &f32s(&[3.0; 64])).await?;
    free(device, &[x])
}

/// `record` may go on after an error.
async fn left_out(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let x = upload(device, &f32s(&[3.0; 8]))?;
    let mut errors = Vec::new();
    let graph = backend.capture(&mut |backend| {
        backend.unary(UnaryOp::Neg, x, x, 8)?;
        errors.extend(backend.unary(UnaryOp::Square, x, x, 9).err());
        errors.extend(backend.synchronize().err());
        errors.extend(backend.alloc(4).err());
        backend.binary(BinaryOp::Add, x, x, x, 8)
    });
    let graph = graph.map_err(text)?;
    let kinds: Vec<ErrorKind> = errors.iter().map(BackendError::kind).collect();
    if kinds != [ErrorKind::BufferTooSmall, ErrorKind::Capturing, ErrorKind::Capturing] {
        return Err(format!("the calls gave {errors:?}"));
    }
    backend.replay(graph).map_err(text)?;
    expect_bytes(device, "x", x, &f32s(&[-6.0; 8])).await?;
    free_with_graph(device, graph, &[x])
}

/// What `record` calls on the backend itself runs at once and isn't captured.
async fn outside(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let x = upload(device, &f32s(&[3.0; 8]))?;
    let y = upload(device, &f32s(&[2.0; 8]))?;
    let graph = backend.capture(&mut |recorded| {
        recorded.binary(BinaryOp::Mul, x, y, x, 8)?;
        if recorded.name() != backend.name() || recorded.capabilities()? != backend.capabilities()? {
            return Err(BackendError::NoAdapter { tried: Vec::new() });
        }
        let inner = backend.capture(&mut |recorded| recorded.fill(x, F32, 8, 5.0))?;
        backend.replay(inner)?;
        backend.free_graph(inner)?;
        backend.binary(BinaryOp::Add, x, y, x, 8)
    });
    let graph = graph.map_err(text)?;
    expect_bytes(device, "x", x, &f32s(&[7.0; 8])).await?;
    backend.replay(graph).map_err(text)?;
    expect_bytes(device, "x", x, &f32s(&[14.0; 8])).await?;
    free_with_graph(device, graph, &[x, y])
}

async fn warmed_up(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let x = upload(device, &f32s(&[1.0; 20]))?;
    let double = |backend: &dyn ComputeBackend| backend.binary(BinaryOp::Add, x, x, x, 20);
    let graph = backend.capture(&mut { double }).map_err(text)?;
    let replayed = |backend: &dyn ComputeBackend| backend.replay(graph);
    let captured = |backend: &dyn ComputeBackend| {
        let graph = backend.capture(&mut |backend| double(backend))?;
        backend.replay(graph).and(backend.free_graph(graph))
    };
    let operations: [Operation<'_>; 2] = [&replayed, &captured];
    device.warm_up(&operations).await.map_err(text)?;
    expect_bytes(device, "x", x, &f32s(&[1.0; 20])).await?;
    backend.replay(graph).map_err(text)?;
    expect_bytes(device, "x", x, &f32s(&[2.0; 20])).await?;
    free_with_graph(device, graph, &[x])
}

/// Each replay draws the numbers after those of the one before, as the offset is increased in memory.
async fn random_stream(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let n = 37;
    let [x, offset] = [upload(device, &f32s(&[0.0; 37]))?, upload(device, &[0; 8])?];
    let step = upload(device, &encode(DType::U32, &[37.0, 0.0]))?;
    let graph = backend.capture(&mut |backend| {
        let distribution = Distribution::Uniform { low: 0.0, high: 1.0 };
        backend
            .random(&RandomDesc::new(x, F32, n, 9, distribution).with_offset(5).with_offset_ptr(offset))?;
        let words = |ptr| TensorDesc::packed(ptr, DType::U32, &[2]);
        backend.binary_ext(&BinaryDesc::new(BinaryOp::Add, words(offset), words(step), words(offset)))
    });
    let graph = graph.map_err(text)?;
    for round in 0..4 {
        backend.replay(graph).map_err(text)?;
        let first = 5 + round * n as u64;
        let number = |at| f64::from(random::uniforms(random::philox_block(9, at / 4))[(at % 4) as usize]);
        let expected: Vec<f64> = (first..first + n as u64).map(number).collect();
        expect_bytes(device, "the numbers", x, &f32s(&expected)).await?;
    }
    free_with_graph(device, graph, &[x, offset, step])
}

/// Attention of one query over a cache that grows: the position and the number of keys lie in memory. What
/// replays give is what calls with the same numbers give.
async fn decode(device: &Device<'_>, format: KvFormat) -> Result<(), String> {
    const DIM: usize = 32;
    const CAPACITY: usize = 24;
    let backend = device.backend;
    let zeros = vec![0; format.bytes("decode", CAPACITY * DIM).map_err(text)?];
    let [k, v] = [upload(device, &zeros)?, upload(device, &zeros)?];
    let [token, o] = [upload(device, &f32s(&[0.0; DIM]))?, upload(device, &f32s(&[0.0; DIM]))?];
    let [position, length] = [upload(device, &[0; 4])?, upload(device, &[0; 4])?];
    let scaled = upload(device, &f32s(&[0.0; DIM]))?;
    let step = |backend: &dyn ComputeBackend| {
        let row = [DIM];
        let tensor = |ptr| TensorDesc::packed(ptr, F32, &row);
        backend.unary_ext(&UnaryDesc::new(UnaryOp::Square, tensor(token), tensor(scaled)))?;
        for (cache, new) in [(k, token), (v, scaled)] {
            if format == KvFormat::Q8_0 {
                let append = QuantizeRowsDesc::new(Matrix::new(new, F32, DIM), cache, CAPACITY, DIM, 1);
                backend.quantize_rows(&append.with_indices(position))?;
                continue;
            }
            let rows = IndexShape { rows: CAPACITY, columns: DIM, count: 1 };
            backend.scatter(&ScatterDesc::new(ScatterOp::Assign, F32, cache, position, new, rows))?;
        }
        let shape = AttentionShape { batch: 1, heads: 1, seq_q: 1, seq_kv: CAPACITY, head_dim: DIM };
        let attention = AttentionDesc::new(F32, token, k, v, o, shape).with_kv_format(format);
        backend.attention_ext(&attention.with_key_lengths(length))?;
        backend.copy(&CopyDesc::new(tensor(o), tensor(scaled)))
    };
    let graph = backend.capture(&mut { step }).map_err(text)?;
    let mut outputs: [Vec<Vec<u8>>; 2] = Default::default();
    for (way, outputs) in outputs.iter_mut().enumerate() {
        backend.copy_htod(k, &zeros).map_err(text)?;
        backend.copy_htod(v, &zeros).map_err(text)?;
        for at in 0..CAPACITY {
            let values: Vec<f64> = (0..DIM).map(|i| ((at * 7 + i * 3) % 11) as f64 / 8.0 - 0.5).collect();
            backend.copy_htod(token, &f32s(&values)).map_err(text)?;
            backend.copy_htod(position, &(at as u32).to_le_bytes()).map_err(text)?;
            backend.copy_htod(length, &(at as u32 + 1).to_le_bytes()).map_err(text)?;
            if way == 0 { step(backend) } else { backend.replay(graph) }.map_err(text)?;
            outputs.push(device.read(scaled, 4 * DIM).await.map_err(text)?);
        }
    }
    let [called, replayed] = &outputs;
    if let Some(at) = (0..CAPACITY).find(|&at| called[at] != replayed[at]) {
        return Err(format!("token {at}: {:?} by calls, {:?} by replays", called[at], replayed[at]));
    }
    if called[0] == called[1] || called[0] == [0; 4 * DIM] {
        return Err("the tokens don't matter".to_owned());
    }
    free_with_graph(device, graph, &[k, v, token, o, position, length, scaled])
}
