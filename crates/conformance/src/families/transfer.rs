//! `copy_htod` and `copy_dtoh`: any byte count at any byte offset.

use super::copy_dtod::{expect_bytes, free, text, upload};
use crate::case::Case;
use crate::rng::Rng;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for offset in 0..8 {
        for len in 0..=9 {
            cases.push(through_a_view(offset, len));
        }
    }
    for (offset, len) in
        [(1, 1001), (2, 4095), (3, 65_537), (4, 262_144), (0, 1_048_576), (5, 5_000_003), (3, 34_000_001)]
    {
        cases.push(through_a_view(offset, len));
    }
    cases.extend([0, 1, 3, 4, 5, 400].map(prefix));
    cases.push(many_small());
    cases
}

/// Writes and reads through a view in the middle of an allocation.
fn through_a_view(offset: usize, len: usize) -> Case {
    Case::random_script("transfer", format!("{len}_bytes_at_{offset}"), move |device, mut rng| {
        Box::pin(async move {
            let mut expected = rng.bytes(offset + len + 7);
            let memory = upload(device, &expected)?;
            let view = device.backend.view(memory, offset, len).map_err(text)?;
            expect_bytes(device, "the view", view, &expected[offset..][..len]).await?;
            let written = rng.bytes(len);
            device.backend.copy_htod(view, &written).map_err(text)?;
            expected[offset..][..len].copy_from_slice(&written);
            expect_bytes(device, "the view", view, &written).await?;
            expect_bytes(device, "the allocation", memory, &expected).await?;
            free(device, &[view, memory])
        })
    })
}

/// Writes and reads less than the whole allocation.
fn prefix(len: usize) -> Case {
    Case::random_script("transfer", format!("first_{len}_of_403_bytes"), move |device, mut rng| {
        Box::pin(async move {
            let mut expected = rng.bytes(403);
            let memory = upload(device, &expected)?;
            let written = rng.bytes(len);
            device.backend.copy_htod(memory, &written).map_err(text)?;
            expected[..len].copy_from_slice(&written);
            expect_bytes(device, "the start", memory, &expected[..len]).await?;
            expect_bytes(device, "the allocation", memory, &expected).await?;
            free(device, &[memory])
        })
    })
}

/// Hundreds of uploads to one allocation without a wait between them.
fn many_small() -> Case {
    Case::script("transfer", "500_uploads_of_one_allocation", |device| {
        Box::pin(async move {
            let mut rng = Rng::from_name("many small uploads");
            let mut expected = rng.bytes(2001);
            let memory = upload(device, &expected)?;
            for _ in 0..500 {
                let offset = rng.below(1990);
                let len = rng.below(11);
                let view = device.backend.view(memory, offset, len).map_err(text)?;
                let written = rng.bytes(len);
                device.backend.copy_htod(view, &written).map_err(text)?;
                expected[offset..][..len].copy_from_slice(&written);
                device.backend.free(view).map_err(text)?;
            }
            expect_bytes(device, "the allocation", memory, &expected).await?;
            free(device, &[memory])
        })
    })
}
