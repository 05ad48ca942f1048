//! Errors that are planted in the CPU's operations must be found, and told as they are.

mod beside;
mod lost;
mod planted;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use backend_api::desc::{CumSumDesc, GatherDesc, IndexShape, LayerNormDesc, SoftmaxDesc, TopKDesc};
use backend_api::owned::Buffer;
use backend_api::{
    BackendError, BackendResult, BackendTranspose::NoTrans, BinaryOp, ComputeBackend, DType, Difference,
    Disagreement, ErrorKind, ReduceOp, Registry, UnaryOp,
};
use backend_cpu::CpuBackend;
use backend_verify::{DIRECTORY_VARIABLE, VerifyBackend};
use conformance::cases;
use libtest_mimic::{Arguments, Failed, Trial};

use beside::reads_begin_together;
use planted::{Plant, Planted};

type Call = fn(&dyn ComputeBackend, [u64; 3]) -> BackendResult<()>;

/// Operations on three buffers of 64 numbers, the last of which they write.
const CALLS: [(&str, Call); 10] = [
    ("unary", |b, [x, _, out]| b.unary(UnaryOp::Gelu, x, out, 64)),
    ("binary", |b, [x, y, out]| b.binary(BinaryOp::Div, x, y, out, 64)),
    ("gemm", |b, [x, y, out]| b.gemm(NoTrans, NoTrans, 8, 8, 8, 1.0, x, 8, y, 8, 0.0, out, 8)),
    ("softmax", |b, [x, _, out]| b.softmax(&SoftmaxDesc::rows(DType::F32, x, out, 2, 32))),
    ("layer_norm", |b, [x, _, out]| b.layer_norm(&LayerNormDesc::new(DType::F32, x, out, 2, 32))),
    ("attention", |b, [x, y, out]| b.attention(x, y, x, out, 1, 2, 4, 4, 8, 0.3, false)),
    ("cumsum", |b, [x, _, out]| b.cumsum(&CumSumDesc::rows(DType::F32, x, out, 2, 32))),
    ("conv2d_forward", |b, [x, y, out]| {
        b.conv2d_forward(x, &[1, 1, 8, 8], y, &[1, 1, 1, 1], out, &[1, 1, 8, 8], &[1, 1], &[0, 0])
    }),
    ("copy_dtod", |b, [x, _, out]| b.copy_dtod(out, x, 256)),
    ("gather", |b, [x, zeros, out]| {
        let shape = IndexShape { rows: 1, columns: 64, count: 1 };
        // The bits of the second buffer's numbers are no rows, which gives zeros.
        b.gather(&GatherDesc::new(DType::F32, x, zeros, out, shape))
    }),
];

type Check = fn() -> Result<(), Failed>;

fn main() {
    let arguments = Arguments::from_args();
    let found = CALLS
        .iter()
        .map(|&(name, call)| Trial::test(format!("element_of_{name}"), move || element_is_named(name, call)));
    let others: [(&str, Check); 13] = [
        ("agreement", cases_agree),
        ("a_refusal_of_one", refusals_of_one_are_told),
        ("in_a_replay", found_in_a_replay),
        ("after_a_panic_in_a_capture", nothing_is_held_after_a_panic),
        ("after_a_panic_in_a_replay", found_after_a_panic),
        ("with_a_file", with_a_file),
        ("a_stray_write", stray_write_is_found_by_a_read),
        ("a_stray_write_and_an_operation", stray_write_is_told_once),
        ("a_read_beside_a_thread", reads_begin_together),
        ("a_cancelled_read", lost::a_cancelled_read_leaves_its_destination),
        ("a_loss", lost::lost_ones_are_opened_again),
        ("bad_arguments", bad_arguments_are_errors_of_both),
        ("handles", handles_are_accounted_for),
    ];
    let trials = found.chain(others.map(|(name, run)| Trial::test(name, run))).collect();
    libtest_mimic::run(&arguments, trials).exit();
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    backend_cpu::register(&mut registry);
    backend_verify::register(&mut registry);
    registry
}

/// A backend agrees with itself in every 50th case of the conformance suite, as it is and replayed.
fn cases_agree() -> Result<(), Failed> {
    let backend = registry().create("verify:cpu,cpu").map_err(told)?;
    let sample = cases().into_iter().filter(|case| case.is_one_call()).step_by(50);
    let mut failures = Vec::new();
    for case in sample {
        let outcomes = [case.run(&*backend), case.run_replayed(&*backend)];
        failures.extend(outcomes.into_iter().filter_map(|outcome| Some(outcome.err()?.to_string())));
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

/// The error of a number that is off by a thousandth.
const WRONG: Plant = Plant::Bytes { at: 4 * 37, bytes: &[0, 0, 0x7d, 0x44] };

fn pair(op: &'static str, plant: Plant) -> Result<VerifyBackend, Failed> {
    let pair = VerifyBackend::new(Box::new(Planted::new(op, plant)), Box::new(CpuBackend::new()));
    pair.map_err(|error| format!("{error:?}").into())
}

fn buffers(backend: &dyn ComputeBackend) -> BackendResult<[u64; 3]> {
    let mut ptrs = [0; 3];
    for (which, ptr) in ptrs.iter_mut().enumerate() {
        *ptr = backend.alloc(256)?;
        let numbers: Vec<f32> = (0..64).map(|i| 0.5 + ((i * 7 + which) % 11) as f32 / 8.0).collect();
        backend.copy_htod(*ptr, bytemuck::cast_slice(&numbers))?;
    }
    Ok(ptrs)
}

fn disagreement(result: BackendResult<()>) -> Result<(&'static str, Box<Disagreement>), Failed> {
    match result {
        Err(BackendError::Disagreement { op, found }) => Ok((op, found)),
        other => Err(format!("{other:?}, expected a disagreement").into()),
    }
}

fn told(error: BackendError) -> Failed {
    format!("{error:?}").into()
}

fn element_is_named(name: &'static str, call: Call) -> Result<(), Failed> {
    let backend = pair(name, WRONG)?;
    let ptrs = buffers(&backend).map_err(told)?;
    let (op, found) = disagreement(call(&backend, ptrs))?;
    let text = found.to_string();
    match &found.about {
        Difference::Elements { index: 37, wrong: 1, values, .. }
            if op == name && values[0].contains("0x447d0000") && values[0] != values[1] => {}
        other => return Err(format!("{op}: {other:?}").into()),
    }
    if !text.contains("[37]") || !text.contains(&format!("{:?}", ptrs[2])) {
        return Err(format!("the error doesn't say all: {text}").into());
    }
    // The caller goes on with the first one's results, and both have the same.
    let mut got = [0f32; 64];
    backend.copy_dtoh(bytemuck::cast_slice_mut(&mut got), ptrs[2]).map_err(told)?;
    if got[37] != 1012.0 {
        return Err(format!("the first backend's result isn't there: {}", got[37]).into());
    }
    // Another operation on the same memory agrees.
    backend.reduce(ReduceOp::Max, ptrs[2], ptrs[0], &[64], 0).map_err(told)?;
    Ok(())
}

fn refusals_of_one_are_told() -> Result<(), Failed> {
    // Of the second.
    let second = Planted::new("softmax", Plant::Refusal);
    let backend = VerifyBackend::new(Box::new(CpuBackend::new()), Box::new(second)).map_err(told)?;
    let [x, _, out] = buffers(&backend).map_err(told)?;
    let softmax = SoftmaxDesc::rows(DType::F32, x, out, 2, 32);
    let (op, found) = disagreement(backend.softmax(&softmax))?;
    let Difference::Outcomes([first, second]) = &found.about else { return Err(format!("{found:?}").into()) };
    if op != "softmax" || first != "succeeds" || !second.contains("a planted size") {
        return Err(format!("{op}: {found}").into());
    }
    // The second has taken the first one's results over.
    backend.copy_dtoh(&mut [0; 256], out).map_err(told)?;
    backend.unary(UnaryOp::Neg, out, out, 64).map_err(told)?;
    // Of the first, whose device may lack what another has: its error, and nothing happened.
    let backend = pair("softmax", Plant::Refusal)?;
    let [x, _, out] = buffers(&backend).map_err(told)?;
    let refused = backend.softmax(&SoftmaxDesc::rows(DType::F32, x, out, 2, 32));
    if refused.as_ref().map_err(BackendError::kind) != Err(ErrorKind::Limit) {
        return Err(format!("{refused:?}").into());
    }
    backend.copy_dtoh(&mut [0; 256], out).map_err(told)
}

fn found_in_a_replay() -> Result<(), Failed> {
    let backend = pair("gemm", WRONG)?;
    let [x, y, out] = buffers(&backend).map_err(told)?;
    let graph = backend
        .capture(&mut |recorded| {
            recorded.unary(UnaryOp::Tanh, x, x, 64)?;
            recorded.gemm(NoTrans, NoTrans, 8, 8, 8, 1.0, x, 8, y, 8, 0.0, out, 8)
        })
        .map_err(told)?;
    // The graph keeps the memory.
    backend.free(y).map_err(told)?;
    let (op, found) = disagreement(backend.replay(graph))?;
    if op != "gemm" || !matches!(found.about, Difference::Elements { index: 37, .. }) {
        return Err(format!("{op}: {found}").into());
    }
    backend.copy_dtoh(&mut [0; 256], out).map_err(told)?;
    backend.free_graph(graph).map_err(told)?;
    for ptr in [x, out] {
        backend.free(ptr).map_err(told)?;
    }
    match backend.memory_stats() {
        stats if (stats.handles, stats.in_use) == (0, 0) => Ok(()),
        stats => Err(format!("left behind: {stats:?}").into()),
    }
}

/// The memory that a capture has taken is given back where it panics.
fn nothing_is_held_after_a_panic() -> Result<(), Failed> {
    let backend = pair("nothing", Plant::Refusal)?;
    let [x, y, out] = buffers(&backend).map_err(told)?;
    let caught = catch_unwind(AssertUnwindSafe(|| {
        backend.capture(&mut |recorded| {
            recorded.binary(BinaryOp::Add, x, y, out, 64)?;
            panic!("a capture that panics")
        })
    }));
    if let Ok(captured) = caught {
        return Err(format!("the panic was lost: {captured:?}").into());
    }
    for ptr in [x, y, out] {
        backend.free(ptr).map_err(told)?;
    }
    let left = [backend.first(), backend.second()].map(|backend| backend.memory_stats());
    let counts = left.map(|stats| (stats.handles, stats.in_use));
    if counts == [(0, 0); 2] { Ok(()) } else { Err(format!("left behind: {counts:?}").into()) }
}

/// A graph whose replay has panicked is compared again by the next.
fn found_after_a_panic() -> Result<(), Failed> {
    let backend = pair("gemm", Plant::Panic)?;
    let [x, y, out] = buffers(&backend).map_err(told)?;
    let graph = backend
        .capture(&mut |recorded| recorded.gemm(NoTrans, NoTrans, 8, 8, 8, 1.0, x, 8, y, 8, 0.0, out, 8))
        .map_err(told)?;
    for _ in 0..2 {
        if let Ok(replayed) = catch_unwind(AssertUnwindSafe(|| backend.replay(graph))) {
            return Err(format!("a replay without its calls gave {replayed:?}").into());
        }
    }
    backend.free_graph(graph).map_err(told)?;
    for ptr in [x, y, out] {
        backend.free(ptr).map_err(told)?;
    }
    match backend.memory_stats() {
        stats if (stats.handles, stats.in_use) == (0, 0) => Ok(()),
        stats => Err(format!("left behind: {stats:?}").into()),
    }
}

/// In a process of its own, as the environment is the whole process's.
fn with_a_file() -> Result<(), Failed> {
    if std::env::var_os(DIRECTORY_VARIABLE).is_none() {
        let directory = std::env::temp_dir().join(format!("verify-{}", std::process::id()));
        // Nobody has made it.
        let output = std::process::Command::new(std::env::current_exe()?)
            .args(["--exact", "with_a_file"])
            .env(DIRECTORY_VARIABLE, &directory)
            .output()?;
        let files = std::fs::read_dir(&directory)?.count();
        std::fs::remove_dir_all(&directory)?;
        return if output.status.success() && files == 1 {
            Ok(())
        } else {
            Err(format!("{files} files: {}", String::from_utf8_lossy(&output.stdout)).into())
        };
    }
    let backend = pair("unary", WRONG)?;
    let [x, _, out] = buffers(&backend).map_err(told)?;
    let (_, found) = disagreement(backend.unary(UnaryOp::Exp, x, out, 64))?;
    let file = found.file.clone().ok_or("no file is named")?;
    check_file(&file)
}

fn check_file(file: &Path) -> Result<(), Failed> {
    let bytes = std::fs::read(file)?;
    let text = String::from_utf8_lossy(&bytes);
    for name in ["before.input", "before.output", "first.output", "second.output", "UnaryDesc"] {
        if !text.contains(name) {
            return Err(format!("{} has no {name}", file.display()).into());
        }
    }
    if text.contains("first.input") { Err("inputs are there once".into()) } else { Ok(()) }
}

/// An operation that writes what it doesn't name.
fn stray_write_is_found_by_a_read() -> Result<(), Failed> {
    let backend = pair("unary", Plant::Bytes { at: 128, bytes: &[1] })?;
    let [x, _, out] = buffers(&backend).map_err(told)?;
    backend.unary(UnaryOp::Neg, x, out, 32).map_err(told)?;
    let (op, found) = disagreement(backend.copy_dtoh(&mut [0; 256], out))?;
    match found.about {
        Difference::Elements { index: 128, wrong: 1, .. } if op == "copy_dtoh" => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// An operation that reads what an earlier one wrote beside its output isn't blamed for it, and the next one hears
/// nothing of it.
fn stray_write_is_told_once() -> Result<(), Failed> {
    let backend = pair("unary", Plant::Bytes { at: 128, bytes: &[1] })?;
    let [x, y, out] = buffers(&backend).map_err(told)?;
    backend.unary(UnaryOp::Neg, x, out, 32).map_err(told)?;
    let (op, found) = disagreement(backend.binary(BinaryOp::Add, out, y, x, 64))?;
    match &found.about {
        Difference::Elements { index: 128, wrong: 1, values, .. }
            if op == "binary" && found.call.starts_with("one before") && values[0] == "byte 0x01" => {}
        other => return Err(format!("{op}: {other:?}").into()),
    }
    backend.binary(BinaryOp::Add, out, y, x, 64).map_err(told)?;
    backend.copy_dtoh(&mut [0; 256], out).map_err(told)?;
    // The operation that saw it has run on both.
    backend.copy_dtoh(&mut [0; 256], x).map_err(told)
}

fn bad_arguments_are_errors_of_both() -> Result<(), Failed> {
    let backend = pair("nothing", Plant::Refusal)?;
    let [x, _, out] = buffers(&backend).map_err(told)?;
    let kind = |result: BackendResult<()>| result.err().map(|error| error.kind());
    let kinds = [
        kind(backend.unary(UnaryOp::Neg, 99, out, 4)),
        kind(backend.unary(UnaryOp::Neg, x, out, 65)),
        kind(backend.copy_htod(99, &[0])),
        kind(backend.copy_dtoh(&mut [0; 257], x)),
        kind(backend.free(99)),
        kind(backend.view(x, 250, 7).map(drop)),
        kind(backend.replay(x)),
        kind(backend.top_k(&TopKDesc::new(DType::F32, x, out, 1, 4, 5))),
    ];
    let expected = [
        ErrorKind::InvalidHandle,
        ErrorKind::BufferTooSmall,
        ErrorKind::InvalidHandle,
        ErrorKind::BufferTooSmall,
        ErrorKind::InvalidHandle,
        ErrorKind::BufferTooSmall,
        ErrorKind::InvalidHandle,
        ErrorKind::Shape,
    ];
    if kinds == expected.map(Some) { Ok(()) } else { Err(format!("{kinds:?}").into()) }
}

fn handles_are_accounted_for() -> Result<(), Failed> {
    let backend = registry().create("verify:cpu,cpu").map_err(told)?;
    let backend: std::sync::Arc<dyn ComputeBackend> = std::sync::Arc::from(backend);
    let Some(verify) = backend.downcast_ref::<VerifyBackend>() else { return Err("another backend".into()) };
    let buffer = Buffer::from_slice(&backend, &[1u8; 7]).map_err(told)?;
    let view = buffer.view(2, 5).map_err(told)?;
    let counts = || [verify.first(), verify.second()].map(|backend| backend.memory_stats().handles);
    if counts() != [2, 2] {
        return Err(format!("{:?}", counts()).into());
    }
    drop(buffer);
    if view.to_vec::<u8>().map_err(told)? != [1; 5] {
        return Err("the view has other bytes".into());
    }
    drop(view);
    if counts() == [0, 0] { Ok(()) } else { Err(format!("{:?} left", counts()).into()) }
}
