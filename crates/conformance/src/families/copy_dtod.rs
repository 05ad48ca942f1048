//! `copy_dtod`: any byte count between any byte offsets.

use backend_api::BackendResult;

use crate::case::Case;
use crate::device::Device;

const LENGTHS: [usize; 18] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 63, 100, 257, 1001, 70_001];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for len in LENGTHS {
        for (from, to) in [(0, 0), (4, 8), (1, 0), (0, 1), (1, 3), (2, 1), (3, 2), (7, 6), (2, 2), (3, 3)] {
            cases.push(between_allocations(len, from, to));
        }
        for (from, gap) in [(0, 0), (1, 2), (3, 1), (2, 0)] {
            cases.push(within_one(len, from, gap));
        }
    }
    cases
}

/// From byte `from` of one allocation to byte `to` of another.
fn between_allocations(len: usize, from: usize, to: usize) -> Case {
    Case::random_script("copy_dtod", format!("{len}_bytes_from_{from}_to_{to}"), move |device, mut rng| {
        Box::pin(async move {
            let source = rng.bytes(from + len + 13);
            let target = rng.bytes(to + len + 11);
            let mut expected = target.clone();
            expected[to..][..len].copy_from_slice(&source[from..][..len]);

            let src = upload(device, &source)?;
            let dst = upload(device, &target)?;
            let src_view = device.backend.view(src, from, len).map_err(text)?;
            let dst_view = device.backend.view(dst, to, len).map_err(text)?;
            device.backend.copy_dtod(dst_view, src_view, len).map_err(text)?;
            expect_bytes(device, "src", src, &source).await?;
            expect_bytes(device, "dst", dst, &expected).await?;
            free(device, &[src_view, dst_view, src, dst])
        })
    })
}

/// From byte `from` of an allocation to a later part of it, `gap` bytes behind the first.
fn within_one(len: usize, from: usize, gap: usize) -> Case {
    let name = format!("{len}_bytes_from_{from}_to_{gap}_behind");
    Case::random_script("copy_dtod", name, move |device, mut rng| {
        Box::pin(async move {
            let before = rng.bytes(from + 2 * len + gap + 9);
            let to = from + len + gap;
            let mut expected = before.clone();
            expected.copy_within(from..from + len, to);

            let memory = upload(device, &before)?;
            let src = device.backend.view(memory, from, len).map_err(text)?;
            let dst = device.backend.view(memory, to, len).map_err(text)?;
            device.backend.copy_dtod(dst, src, len).map_err(text)?;
            expect_bytes(device, "memory", memory, &expected).await?;
            free(device, &[src, dst, memory])
        })
    })
}

/// A new allocation that holds `bytes`.
pub(super) fn upload(device: &Device<'_>, bytes: &[u8]) -> Result<u64, String> {
    let ptr = device.backend.alloc(bytes.len()).map_err(text)?;
    device.backend.copy_htod(ptr, bytes).map_err(text)?;
    Ok(ptr)
}

/// Frees all of `ptrs`.
pub(super) fn free(device: &Device<'_>, ptrs: &[u64]) -> Result<(), String> {
    let freed: BackendResult<()> = ptrs.iter().try_for_each(|&ptr| device.backend.free(ptr));
    freed.map_err(text)
}

/// Frees a graph, then all of `ptrs`.
pub(super) fn free_with_graph(device: &Device<'_>, graph: u64, ptrs: &[u64]) -> Result<(), String> {
    device.backend.free_graph(graph).map_err(text)?;
    free(device, ptrs)
}

/// The memory behind `ptr` must start with `expected`.
pub(super) async fn expect_bytes(
    device: &Device<'_>,
    what: &str,
    ptr: u64,
    expected: &[u8],
) -> Result<(), String> {
    let got = device.read(ptr, expected.len()).await.map_err(text)?;
    match got.iter().zip(expected).position(|(got, expected)| got != expected) {
        Some(at) => Err(format!("byte {at} of {what} is {}, want {}", got[at], expected[at])),
        None => Ok(()),
    }
}

/// An error as a script reports it.
pub(super) fn text(error: backend_api::BackendError) -> String {
    format!("unexpected error: {error}")
}
