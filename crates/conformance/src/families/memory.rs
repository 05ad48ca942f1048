//! Handles: their life, and what views see.

use backend_api::{BackendResult, DType, ErrorKind, UnaryOp};

use super::copy_dtod::{expect_bytes, free, text, upload};
use crate::case::Case;
use crate::device::Device;
use crate::element::encode;
use crate::rng::Rng;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::script("memory", "alloc_of_0_bytes", |device| Box::pin(alloc_nothing(device))),
        Case::script("memory", "handles_are_distinct", |device| Box::pin(distinct(device))),
        Case::script("memory", "freed_handles_are_invalid", |device| Box::pin(freed(device))),
        Case::script("memory", "unknown_handles_are_invalid", |device| Box::pin(unknown(device))),
        Case::script("memory", "a_view_outlives_its_parent", |device| Box::pin(outlives(device))),
        Case::script("memory", "a_freed_view_leaves_its_parent", |device| Box::pin(view_freed(device))),
        Case::script("memory", "a_view_shares_its_parents_bytes", |device| Box::pin(shares(device))),
        Case::script("memory", "views_past_the_end_are_refused", |device| Box::pin(past_end(device))),
        Case::script("memory", "reads_and_writes_past_a_view_are_refused", |device| {
            Box::pin(past_view(device))
        }),
        Case::script("memory", "freeing_recorded_work_is_safe", |device| Box::pin(freed_in_flight(device))),
        Case::script("memory", "handles_are_counted", |device| Box::pin(counted(device))),
        Case::script("memory", "trim_keeps_live_memory", |device| Box::pin(trimmed(device))),
        Case::script("memory", "the_backend_tells_what_it_is", |device| Box::pin(introspection(device))),
    ];
    cases.extend((1..=12).map(views_of_views));
    cases
}

fn expect(what: &str, right: bool) -> Result<(), String> {
    if right { Ok(()) } else { Err(format!("not so: {what}")) }
}

fn expect_kind<T>(what: &str, result: BackendResult<T>, kind: ErrorKind) -> Result<(), String> {
    match result {
        Err(error) if error.kind() == kind => Ok(()),
        Err(error) => Err(format!("{what}: want {kind:?}, got: {error}")),
        Ok(_) => Err(format!("{what}: want {kind:?}, got success")),
    }
}

async fn alloc_nothing(device: &Device<'_>) -> Result<(), String> {
    let ptr = device.backend.alloc(0).map_err(text)?;
    expect("the handle is not 0", ptr != 0)?;
    device.backend.copy_htod(ptr, &[]).map_err(text)?;
    expect_bytes(device, "nothing", ptr, &[]).await?;
    expect_kind("writing a byte", device.backend.copy_htod(ptr, &[1]), ErrorKind::BufferTooSmall)?;
    let view = device.backend.view(ptr, 0, 0).map_err(text)?;
    free(device, &[view, ptr])
}

async fn distinct(device: &Device<'_>) -> Result<(), String> {
    let mut ptrs = Vec::new();
    for i in 0..100 {
        ptrs.push(device.backend.alloc(i % 7).map_err(text)?);
    }
    let mut sorted = ptrs.clone();
    sorted.sort_unstable();
    sorted.dedup();
    expect("100 handles are distinct and not 0", sorted.len() == 100 && sorted[0] != 0)?;
    free(device, &ptrs)?;
    let again = device.backend.alloc(4).map_err(text)?;
    expect("a freed handle is not given out again", !ptrs.contains(&again))?;
    free(device, &[again])
}

async fn freed(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let ptr = upload(device, &[1, 2, 3, 4])?;
    let live = upload(device, &[5, 6, 7, 8])?;
    free(device, &[ptr])?;
    let invalid = ErrorKind::InvalidHandle;
    expect_kind("freeing twice", backend.free(ptr), invalid)?;
    expect_kind("writing", backend.copy_htod(ptr, &[0; 4]), invalid)?;
    expect_kind("reading", device.read(ptr, 4).await, invalid)?;
    expect_kind("viewing", backend.view(ptr, 0, 4), invalid)?;
    expect_kind("an input", backend.unary(UnaryOp::Neg, ptr, live, 1), invalid)?;
    expect_kind("an output", backend.unary(UnaryOp::Neg, live, ptr, 1), invalid)?;
    expect_bytes(device, "the other allocation", live, &[5, 6, 7, 8]).await?;
    free(device, &[live])
}

async fn unknown(device: &Device<'_>) -> Result<(), String> {
    for ptr in [0, 1, 12345, u64::from(u32::MAX), u64::MAX, 0xdead_beef_0000_0000] {
        let invalid = ErrorKind::InvalidHandle;
        expect_kind(&format!("freeing {ptr:#x}"), device.backend.free(ptr), invalid)?;
        expect_kind(&format!("reading {ptr:#x}"), device.read(ptr, 1).await, invalid)?;
    }
    // A handle is no address, whatever else is live.
    let mut live = Vec::new();
    for _ in 0..40 {
        live.push(upload(device, &[0; 4])?);
    }
    for offset in 1..=64 {
        for near in [live[0].wrapping_add(offset), live[0].wrapping_sub(offset)] {
            let invalid = ErrorKind::InvalidHandle;
            expect_kind(&format!("{offset} from a handle"), device.backend.view(near, 0, 4), invalid)?;
        }
    }
    free(device, &live)
}

async fn outlives(device: &Device<'_>) -> Result<(), String> {
    let bytes = Rng::from_name("outlives").bytes(64);
    let parent = upload(device, &bytes)?;
    let view = device.backend.view(parent, 8, 16).map_err(text)?;
    free(device, &[parent])?;
    // New memory of the same size must not be the memory that the view still holds.
    let other = upload(device, &[0; 64])?;
    expect_bytes(device, "the view", view, &bytes[8..24]).await?;
    let deeper = device.backend.view(view, 4, 4).map_err(text)?;
    free(device, &[view])?;
    expect_bytes(device, "the view of the view", deeper, &bytes[12..16]).await?;
    free(device, &[deeper, other])
}

async fn view_freed(device: &Device<'_>) -> Result<(), String> {
    let bytes = Rng::from_name("view freed").bytes(40);
    let parent = upload(device, &bytes)?;
    let view = device.backend.view(parent, 4, 8).map_err(text)?;
    free(device, &[view])?;
    expect_kind("the view freed twice", device.backend.free(view), ErrorKind::InvalidHandle)?;
    expect_bytes(device, "the parent", parent, &bytes).await?;
    free(device, &[parent])
}

async fn shares(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let parent = upload(device, &encode(DType::F32, &[1.0, 2.0, 3.0, 4.0]))?;
    let view = backend.view(parent, 4, 8).map_err(text)?;
    backend.unary(UnaryOp::Neg, view, view, 2).map_err(text)?;
    expect_bytes(device, "the parent", parent, &encode(DType::F32, &[1.0, -2.0, -3.0, 4.0])).await?;
    backend.unary(UnaryOp::Square, parent, parent, 4).map_err(text)?;
    expect_bytes(device, "the view", view, &encode(DType::F32, &[4.0, 9.0])).await?;
    free(device, &[view, parent])
}

async fn past_end(device: &Device<'_>) -> Result<(), String> {
    let parent = upload(device, &[7; 32])?;
    let view = device.backend.view(parent, 8, 16).map_err(text)?;
    let cases = [(parent, 0, 33), (parent, 32, 1), (parent, 33, 0), (view, 8, 9), (view, 17, 0)];
    for (ptr, offset, len) in cases.into_iter().chain([(parent, usize::MAX, 2), (parent, 2, usize::MAX)]) {
        match device.backend.view(ptr, offset, len) {
            Err(error) if matches!(error.kind(), ErrorKind::BufferTooSmall | ErrorKind::Overflow) => {}
            Err(error) => return Err(format!("{len} bytes at {offset}: got: {error}")),
            Ok(_) => return Err(format!("{len} bytes at {offset} of a shorter one: got success")),
        }
    }
    let end = device.backend.view(parent, 32, 0).map_err(text)?;
    free(device, &[end, view, parent])
}

async fn past_view(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let parent = upload(device, &[7; 64])?;
    let view = backend.view(parent, 8, 16).map_err(text)?;
    let small = ErrorKind::BufferTooSmall;
    expect_kind("writing", backend.copy_htod(view, &[0; 17]), small)?;
    expect_kind("reading", device.read(view, 17).await, small)?;
    expect_kind("an output", backend.fill(view, DType::F32, 5, 1.0), small)?;
    expect_kind("an input", backend.unary(UnaryOp::Neg, view, view, 5), small)?;
    expect_bytes(device, "the parent", parent, &[7; 64]).await?;
    free(device, &[view, parent])
}

async fn freed_in_flight(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    let result = upload(device, &[0; 4000])?;
    for round in 1..=20 {
        let value = f64::from(round);
        let temporary = backend.alloc(4000).map_err(text)?;
        backend.fill(temporary, DType::F32, 1000, value).map_err(text)?;
        backend.binary(backend_api::BinaryOp::Add, temporary, result, result, 1000).map_err(text)?;
        free(device, &[temporary])?;
        // Memory that is reused at once must not be what the recorded sum still reads.
        let next = upload(device, &[0xff; 4000])?;
        free(device, &[next])?;
    }
    expect_bytes(device, "the sum", result, &encode(DType::F32, &[210.0; 1000])).await?;
    free(device, &[result])
}

/// Other cases may run on the same backend at the same time, so only lower bounds can be checked.
async fn counted(device: &Device<'_>) -> Result<(), String> {
    let ptr = device.backend.alloc(1 << 20).map_err(text)?;
    let view = device.backend.view(ptr, 0, 4).map_err(text)?;
    let stats = device.backend.memory_stats();
    expect("in_use counts a live allocation", stats.in_use >= 1 << 20)?;
    expect("peak is at least in_use", stats.peak >= stats.in_use)?;
    expect("an allocation and a view are two handles", stats.handles >= 2)?;
    free(device, &[view, ptr])
}

async fn trimmed(device: &Device<'_>) -> Result<(), String> {
    let bytes = Rng::from_name("trimmed").bytes(5000);
    let ptr = upload(device, &bytes)?;
    let freed = upload(device, &[1; 50_000])?;
    free(device, &[freed])?;
    device.backend.trim().map_err(text)?;
    expect_bytes(device, "live memory", ptr, &bytes).await?;
    free(device, &[ptr])
}

async fn introspection(device: &Device<'_>) -> Result<(), String> {
    let backend = device.backend;
    expect("an open backend is initialised", backend.is_initialized())?;
    let info = backend.device_info().map_err(text)?;
    expect("the device has a name", !info.name.is_empty())?;
    expect("the device has an interface", !info.api.is_empty())?;
    let base = info.selector.split(':').next();
    expect("the selector starts with the backend's name", base == Some(backend.name()))?;
    let capabilities = backend.capabilities().map_err(text)?;
    expect("allocations of 16 MiB are possible", capabilities.max_alloc_bytes >= 1 << 24)?;
    device.synchronize().await.map_err(text)
}

/// A chain of views, each cutting bytes off both ends of the last.
fn views_of_views(depth: usize) -> Case {
    Case::random_script("memory", format!("{depth}_views_of_views"), move |device, mut rng| {
        Box::pin(async move {
            let mut bytes = rng.bytes(200);
            let parent = upload(device, &bytes)?;
            let mut ptrs = vec![parent];
            let (mut ptr, mut start, mut len) = (parent, 0, bytes.len());
            for _ in 0..depth {
                let (front, back) = (rng.below(7), rng.below(7));
                len -= front + back;
                start += front;
                ptr = device.backend.view(ptr, front, len).map_err(text)?;
                ptrs.push(ptr);
            }
            expect_bytes(device, "the innermost view", ptr, &bytes[start..][..len]).await?;
            let written = rng.bytes(len);
            device.backend.copy_htod(ptr, &written).map_err(text)?;
            bytes[start..][..len].copy_from_slice(&written);
            expect_bytes(device, "the allocation", parent, &bytes).await?;
            free(device, &ptrs)
        })
    })
}
