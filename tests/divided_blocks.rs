//! Allocations of several buffers, on devices whose buffers are no larger than [`BUFFER`]: transfers, views and copies
//! across them, what a failed one leaves, and weights, tables and caches that lie in them. Numbers are whole and small,
//! so results are exact.

use std::task::{Context, Poll, Waker};

use backend_api::desc::{AttentionDesc, AttentionShape, GatherDesc, IndexShape, MatmulDesc, Matrix};
use backend_api::{BackendError, BackendResult, BackendTranspose, ComputeBackend, DType, ErrorKind};
use backend_webgpu::{KernelDesc, WebGpuBackend};

use super::large_operands::{compare, result, upload, value};
use super::{BUFFER, read, text};

/// Bytes of an allocation of three buffers and a part of a fourth.
const BYTES: usize = 3 * BUFFER + 1000;

fn byte(i: usize) -> u8 {
    (i * 7 + i / 251) as u8
}

/// Uploads, reads, views, fills and copies, from and to odd bytes, of what lies in several buffers.
pub(super) fn transfers(backend: &WebGpuBackend) -> Result<(), String> {
    let mut want: Vec<u8> = (0..BYTES).map(byte).collect();
    let run = |want: &mut Vec<u8>| -> BackendResult<()> {
        let [block, other] = [backend.alloc(BYTES)?, backend.alloc_zeroed(BYTES + 8)?];
        backend.copy_htod(block, want)?;
        for (start, len) in
            [(BUFFER - 8, 16), (BUFFER - 5, 9), (BUFFER - 1, 1), (2 * BUFFER, 3), (7, 2 * BUFFER + 2)]
        {
            let view = backend.view(block, start, len)?;
            let bytes: Vec<u8> = (start..start + len).map(|i| byte(3 * i)).collect();
            backend.copy_htod(view, &bytes)?;
            want[start..start + len].copy_from_slice(&bytes);
            let mut got = vec![0; len];
            backend.copy_dtoh(&mut got, view)?;
            assert_eq!(got, bytes, "{len} bytes from {start} on");
            backend.free(view)?;
        }
        let filled = backend.view(block, BUFFER - 64, BUFFER + 128)?;
        backend.fill(filled, DType::F32, BUFFER / 4 + 32, 0.0)?;
        want[BUFFER - 64..2 * BUFFER + 64].fill(0);
        // To other places in the buffers than they come from, and within one allocation.
        for shift in [0, 3, 4] {
            let target = backend.view(other, shift, BYTES)?;
            backend.copy_dtod(target, block, BYTES)?;
            let mut got = vec![0; BYTES];
            backend.copy_dtoh(&mut got, target)?;
            assert!(&got == want, "a copy to byte {shift}");
            backend.free(target)?;
        }
        let [from, to] =
            [(5, BUFFER + 77), (BUFFER + 300, BUFFER + 77)].map(|(at, len)| backend.view(block, at, len));
        let [from, to] = [from?, to?];
        backend.copy_dtod(to, from, BUFFER + 77)?;
        want.copy_within(5..BUFFER + 82, BUFFER + 300);
        [from, to, filled].into_iter().try_for_each(|ptr| backend.free(ptr))?;
        let mut got = vec![0; BYTES];
        backend.copy_dtoh(&mut got, block)?;
        assert!(&got == want, "a copy within the allocation");
        [block, other].into_iter().try_for_each(|ptr| backend.free(ptr))
    };
    run(&mut want).map_err(text)
}

/// A read of many pieces has what was there when it began, whatever is written before they have come, and leaves all of its
/// destination as it was while some have yet to come.
pub(super) fn reads(backend: &WebGpuBackend) -> Result<(), String> {
    let want: Vec<u8> = (0..BYTES).map(byte).collect();
    for most_polls in [2, usize::MAX] {
        let mut got = vec![7; BYTES];
        let is_ready = read_beside_a_write(backend, &mut got, &want, most_polls).map_err(text)?;
        let expected = |i: usize| if is_ready { want[i] } else { 7 };
        if let Some(at) = (0..BYTES).find(|&i| got[i] != expected(i)) {
            let (found, polls) = (got[at], if is_ready { "a read" } else { "a read that was cancelled" });
            return Err(format!("byte {at} of {polls} is {found}, not {}", expected(at)));
        }
    }
    Ok(())
}

/// Whether a read that is polled so often at most has come.
fn read_beside_a_write(
    backend: &WebGpuBackend,
    got: &mut [u8],
    content: &[u8],
    most_polls: usize,
) -> BackendResult<bool> {
    let block = backend.alloc(BYTES)?;
    backend.copy_htod(block, content)?;
    let mut read = backend.copy_dtoh_async(got, block);
    let mut is_ready = false;
    for poll in 0..most_polls {
        match read.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => {
                outcome?;
                is_ready = true;
                break;
            }
            Poll::Pending if poll == 0 => {
                backend.fill(block, DType::U32, BYTES / 4, 0.0)?;
                backend.synchronize()?;
            }
            Poll::Pending => std::thread::yield_now(),
        }
    }
    drop(read);
    backend.free(block)?;
    Ok(is_ready)
}

/// What allocations count as, what one leaves whose later buffers are refused, and what can't be had of them.
pub(super) fn memory(backend: &WebGpuBackend) -> Result<(), String> {
    let stats = || -> Result<_, String> {
        backend.synchronize().map_err(text)?;
        Ok(backend.memory_stats())
    };
    let kept = backend.alloc(BUFFER).map_err(text)?;
    let before = stats()?;
    for refused in 0..4 {
        backend.refuse_allocations(refused, usize::MAX).map_err(text)?;
        let failed = backend.alloc(BYTES);
        backend.refuse_allocations(0, 0).map_err(text)?;
        match failed {
            Err(BackendError::OutOfMemory { requested: BYTES, in_use }) if in_use == before.in_use => {}
            other => return Err(format!("with buffer {refused} refused, {other:?}")),
        }
        let now = stats()?;
        let counted = |of: &backend_api::MemoryStats| (of.in_use, of.asked, of.peak, of.handles);
        if counted(&now) != counted(&before) {
            return Err(format!("with buffer {refused} refused, {before:?} became {now:?}"));
        }
    }
    let block = backend.alloc(BYTES).map_err(text)?;
    let now = stats()?;
    if now.asked - before.asked != BYTES || !(BYTES..BYTES + 256).contains(&(now.in_use - before.in_use)) {
        return Err(format!("{BYTES} more bytes made {now:?} of {before:?}"));
    }
    if let other @ (Ok(_) | Err(BackendError::InvalidHandle { .. })) = backend.export_buffer(block) {
        return Err(format!("an exported block of several buffers: {other:?}"));
    }
    let most = backend.capabilities().map_err(text)?.max_alloc_bytes;
    if most < 16 * BUFFER {
        return Err(format!("allocations have at most {most} bytes"));
    }
    let error = |result: BackendResult<u64>| result.err().map(|error| error.kind());
    if error(backend.alloc(most + 1)) != Some(ErrorKind::Limit) {
        return Err(format!("{} bytes could be had", most + 1));
    }
    backend.set_memory_budget(Some(now.in_use + BYTES - 1)).map_err(text)?;
    if error(backend.alloc(BYTES)) != Some(ErrorKind::OutOfMemory) {
        return Err("an allocation passed the budget".to_owned());
    }
    backend.set_memory_budget(None).map_err(text)?;
    [block, kept].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)?;
    // What is freed is kept buffer by buffer.
    let pooled = backend.memory_stats().pooled;
    let block = backend.alloc(BYTES).map_err(text)?;
    let reused = pooled - backend.memory_stats().pooled;
    if reused < 3 * BUFFER {
        return Err(format!("only {reused} bytes of {pooled} were used again"));
    }
    backend.free(block).map_err(text)?;
    backend.trim().map_err(text).map(drop)
}

/// Rows of a table that no buffer ends with.
pub(super) fn tables(backend: &WebGpuBackend) -> Result<(), String> {
    let (rows, columns) = (700, 300);
    let table = upload(backend, rows * columns, value).map_err(text)?;
    let at = |i: usize| if i.is_multiple_of(3) { i % rows } else { BUFFER * (1 + i % 3) / 4 / columns };
    let chosen: Vec<u32> = (0..60).map(|i| at(i * 31) as u32).collect();
    let indices = backend.alloc(4 * chosen.len()).map_err(text)?;
    backend.copy_htod(indices, bytemuck::cast_slice(&chosen)).map_err(text)?;
    let shape = IndexShape { rows, columns, count: chosen.len() };
    let got = result(backend, chosen.len() * columns, |y| {
        backend.gather(&GatherDesc::new(DType::F32, table, indices, y, shape))
    })?;
    compare("gather", &got, |i| value(chosen[i / columns] as usize * columns + i % columns))?;
    [table, indices].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
}

/// Products with A, B in either order, or C in several buffers, whose rows no buffer ends with; alone, and captured and
/// replayed with other numbers.
pub(super) fn products(backend: &WebGpuBackend) -> Result<(), String> {
    let (no, yes) = (BackendTranspose::NoTrans, BackendTranspose::Trans);
    for ([m, n, k], trans, replayed) in [
        ([3, 1000, 200], [no, yes], true),
        ([3, 1000, 200], [no, no], false),
        ([1000, 3, 200], [no, no], false),
        ([1000, 3, 200], [yes, no], false),
        ([520, 510, 2], [no, no], true),
    ] {
        let (a, b) =
            (upload(backend, m * k, value).map_err(text)?, upload(backend, k * n, value).map_err(text)?);
        let stride = |ptr, columns| Matrix::new(ptr, DType::F32, columns);
        let got = result(backend, m * n, |c| {
            let desc = MatmulDesc::new(
                m,
                n,
                k,
                stride(a, if trans[0] == yes { m } else { k }),
                stride(b, if trans[1] == yes { k } else { n }),
                stride(c, n),
            );
            let desc = desc.with_transpose(trans[0], trans[1]);
            if !replayed {
                return backend.matmul(&desc);
            }
            let graph = backend.capture(&mut |recorded| recorded.matmul(&desc))?;
            backend.fill(b, DType::F32, k * n, 0.0)?;
            backend.replay(graph)?;
            let numbers: Vec<f32> = (0..k * n).map(value).collect();
            backend.copy_htod(b, bytemuck::cast_slice(&numbers))?;
            backend.replay(graph)?;
            backend.free_graph(graph)
        })?;
        let of_a = |i: usize, p: usize| value(if trans[0] == yes { p * m + i } else { i * k + p });
        let of_b = |p: usize, j: usize| value(if trans[1] == yes { j * k + p } else { p * n + j });
        compare(&format!("{m}×{n}×{k} {trans:?}"), &got, |at| {
            (0..k).map(|p| of_a(at / n, p) * of_b(p, at % n)).sum()
        })?;
        [a, b].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)?;
    }
    Ok(())
}

/// Keys and values in several buffers, one head of which begins in one and ends in the next. Each query finds one key.
pub(super) fn caches(backend: &WebGpuBackend) -> Result<(), String> {
    let (heads, seq_kv, head_dim) = (19, 250, 64);
    let found = |head: usize| (head * 29 + 3) % seq_kv;
    let n = heads * seq_kv * head_dim;
    let key = |i: usize| {
        let (head, token) = (i / (seq_kv * head_dim), i / head_dim % seq_kv);
        if i % head_dim == 5 && token == found(head) { 300.0 } else { 0.0 }
    };
    let (k, v) = (upload(backend, n, key).map_err(text)?, upload(backend, n, value).map_err(text)?);
    for seq_q in [1, 20] {
        let m = heads * seq_q * head_dim;
        let q = upload(backend, m, |_| 1.0).map_err(text)?;
        let got = result(backend, m, |o| {
            let shape = AttentionShape { batch: 1, heads, seq_q, seq_kv, head_dim };
            let mut desc = AttentionDesc::new(DType::F32, q, k, v, o, shape);
            desc.scale = 1.0;
            backend.attention_ext(&desc)
        })?;
        compare(&format!("{seq_q} queries"), &got, |i| {
            let head = i / (seq_q * head_dim);
            value((head * seq_kv + found(head)) * head_dim + i % head_dim)
        })?;
        backend.free(q).map_err(text)?;
    }
    [k, v].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
}

const DOUBLE: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < min(arrayLength(&x), arrayLength(&y)) { y[id.x] = 2.0 * x[id.x]; }
}";

/// A kernel of the caller's reads what lies in two buffers, and writes what lies in one; else it is refused.
pub(super) fn own_kernels(backend: &WebGpuBackend) -> Result<(), String> {
    let kernel = backend.kernel(&KernelDesc::new("double", DOUBLE)).map_err(text)?;
    let block = upload(backend, BYTES / 4, value).map_err(text)?;
    let n = 512;
    let [across, within] = [BUFFER - n * 2, 2 * BUFFER + 256].map(|start| backend.view(block, start, 4 * n));
    let (across, within) = (across.map_err(text)?, within.map_err(text)?);
    let grid = [n as u32 / 64, 1, 1];
    backend.launch(&kernel, &[across, within], &[], grid).map_err(text)?;
    compare("a launch", &read(backend, within, n).map_err(text)?, |i| 2.0 * value(BUFFER / 4 - n / 2 + i))?;
    match backend.launch(&kernel, &[within, across], &[], grid) {
        Err(BackendError::Limit { what, requested, max, .. })
            if what.contains("`bindings[1]`, which crosses the end of a buffer")
                && (requested, max) == (4 * n, 2 * n) => {}
        other => return Err(format!("writing to two buffers gave {other:?}")),
    }
    let same = read(backend, across, n).map_err(text)?;
    compare("what was not written", &same, |i| value(BUFFER / 4 - n / 2 + i))?;
    [across, within, block].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
}
