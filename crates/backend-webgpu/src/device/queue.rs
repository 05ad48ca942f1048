//! Which device a queue belongs to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether `queue` is the device's own, as far as that can be told within `patience`: wgpu doesn't say, and panics where
/// it isn't. Work on the device that takes longer, and a lost device, leave it open.
pub(crate) fn may_be_of(device: &wgpu::Device, queue: &wgpu::Queue, patience: Duration) -> bool {
    let is_done = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&is_done);
    // A poll of a device makes the callbacks of its own queue only.
    queue.on_submitted_work_done(move || done.store(true, Ordering::Release));
    let wait = wgpu::PollType::Wait { submission_index: None, timeout: Some(patience) };
    [wgpu::PollType::Poll, wait]
        .into_iter()
        .any(|poll| device.poll(poll).is_err() || is_done.load(Ordering::Acquire))
}
