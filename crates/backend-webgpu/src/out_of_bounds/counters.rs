//! Where accesses outside are counted on a device.

use std::fmt::Write as _;
use std::sync::Arc;

use backend_api::{BackendError, BackendResult, Diagnostic};

use super::Watch;
use super::instrument::{PLACES, SLOT, instrument};
use crate::kernels::Variant;
use crate::memory::Block;
use crate::sync::Mutex;

/// Kernels that can be told apart.
const KERNELS: usize = 16_384;

/// The counters of every kernel of a device: a word that says whether there is anything, then a slot for each
/// kernel.
#[derive(Debug)]
pub(crate) struct Counters {
    block: Arc<Block>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// The kernels by their slots.
    kernels: Vec<Variant>,
    /// Kernels whose accesses can't be counted, and why.
    uncounted: Vec<String>,
}

impl Counters {
    pub(crate) fn new(device: &wgpu::Device) -> Self {
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("out of bounds"),
            size: 4 * (1 + KERNELS * SLOT) as u64,
            usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        Self { block: Arc::new(Block::foreign(buffer)), known: Mutex::default() }
    }

    /// What every launch of the kernel needs.
    pub(crate) fn watch(&self, variant: &Variant) -> Watch {
        Watch::new(variant, &self.block)
    }

    /// The kernel with its accesses counted; `None` for a text that is wrong, which is for its compiler to
    /// say.
    pub(crate) fn instrument(&self, variant: &Variant, text: &str) -> Option<naga::Module> {
        naga::front::wgsl::parse_str(text).ok()?;
        let slot = {
            let kernels = &mut self.known.lock().kernels;
            kernels.push(*variant);
            kernels.len() - 1
        };
        let instrumented = if slot < KERNELS {
            instrument(variant, text, 1 + slot * SLOT)
        } else {
            Err("there are more kernels than counters".to_owned())
        };
        let uncounted = |why| self.known.lock().uncounted.push(format!("{variant:?} is not counted: {why}"));
        instrumented.map_err(uncounted).ok()
    }

    /// An error that names every kernel with accesses outside since the last call, how many there are, and
    /// the largest index. To be called when the device has finished.
    pub(crate) fn take(
        &self,
        op: &'static str,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
    ) -> BackendResult<()> {
        let mut known = self.known.lock();
        let mut report = std::mem::take(&mut known.uncounted).join("\n");
        if read(device, queue, self.block.buffer(), 1)?.first().is_some_and(|&any| any != 0) {
            let words =
                read(device, queue, self.block.buffer(), 1 + known.kernels.len().min(KERNELS) * SLOT)?;
            let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            encoder.clear_buffer(self.block.buffer(), 0, None);
            queue.submit([encoder.finish()]);
            for (variant, slot) in known.kernels.iter().zip(words[1..].chunks(SLOT)) {
                for (place, counts) in PLACES.iter().zip(slot.chunks(2)) {
                    if let &[count, largest] = counts
                        && count > 0
                    {
                        _ = write!(
                            report,
                            "\n{count} accesses outside {place} of {variant:?}, the largest index is {largest}"
                        );
                    }
                }
            }
        }
        if report.is_empty() {
            Ok(())
        } else {
            Err(BackendError::Driver { op, source: Diagnostic::new(report) })
        }
    }
}

/// The first words of a buffer.
fn read(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    buffer: &wgpu::Buffer,
    words: usize,
) -> BackendResult<Vec<u32>> {
    let lost = |reason: String| BackendError::DeviceLost { reason };
    let staging = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("out of bounds"),
        size: 4 * words as u64,
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
        mapped_at_creation: false,
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, staging.size());
    queue.submit([encoder.finish()]);
    staging.slice(..).map_async(wgpu::MapMode::Read, |_| ());
    device.poll(wgpu::PollType::wait_indefinitely()).map_err(|error| lost(error.to_string()))?;
    let mapped = staging.slice(..).get_mapped_range().map_err(|error| lost(error.to_string()))?;
    Ok(mapped.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect())
}
