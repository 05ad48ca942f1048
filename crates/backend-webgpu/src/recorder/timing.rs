//! Device time by timestamp queries.

use std::time::Duration;

use crate::memory::buffer_outside;

/// Two timestamps of the device: [`start`](Self::start) and [`stop`](Self::stop), each written by an empty
/// pass.
#[derive(Debug)]
pub(crate) struct Stopwatch {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    period: f32,
}

impl Stopwatch {
    pub(crate) const BYTES: usize = 16;

    /// For a device with [`Features::TIMESTAMP_QUERY`](wgpu::Features::TIMESTAMP_QUERY).
    pub(crate) fn new(device: &wgpu::Device, queue: &wgpu::Queue) -> Self {
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        Self {
            queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("stopwatch"),
                ty: wgpu::QueryType::Timestamp,
                count: 2,
            }),
            resolved: buffer_outside(device, "stopwatch", Self::BYTES, usage),
            period: queue.get_timestamp_period(),
        }
    }

    /// Notes the time before what `encoder` records next.
    pub(crate) fn start(&self, encoder: &mut wgpu::CommandEncoder) {
        self.write(encoder, 0);
    }

    /// Notes the time after what `encoder` has recorded; both times are then in the returned buffer.
    pub(crate) fn stop(&self, encoder: &mut wgpu::CommandEncoder) -> &wgpu::Buffer {
        self.write(encoder, 1);
        encoder.resolve_query_set(&self.queries, 0..2, &self.resolved, 0);
        &self.resolved
    }

    /// The time between, from the buffer's content.
    pub(crate) fn elapsed(&self, bytes: [u8; Self::BYTES]) -> Duration {
        let [start, stop]: [u64; 2] = bytemuck::cast(bytes);
        Duration::from_nanos((stop.saturating_sub(start) as f64 * f64::from(self.period)) as u64)
    }

    fn write(&self, encoder: &mut wgpu::CommandEncoder, index: u32) {
        // Only the beginning of the pass is noted: two queries of one pass may not have the same index.
        encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
            label: Some("stopwatch"),
            timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                query_set: &self.queries,
                beginning_of_pass_write_index: Some(index),
                end_of_pass_write_index: None,
            }),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebGpuBackend;
    use crate::memory::GRANULARITY;

    #[test]
    fn ticks_are_as_long_as_the_queue_says() {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        let (device, queue) = (backend.device().unwrap(), backend.queue().unwrap());
        if !device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            println!("not run: the adapter has no timestamps");
            return;
        }
        let mut stopwatch = Stopwatch::new(device, queue);
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        assert_eq!(stopwatch.resolved.usage(), usage);
        assert!(stopwatch.resolved.size().is_multiple_of(GRANULARITY as u64));
        stopwatch.period = 2.5;
        let elapsed = |start: u64, stop: u64| stopwatch.elapsed(bytemuck::cast([start, stop]));
        assert_eq!(elapsed(100, 500), Duration::from_micros(1));
        assert_eq!(elapsed(500, 100), Duration::ZERO);

        // Two times of the device, both written.
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        stopwatch.start(&mut encoder);
        let resolved = stopwatch.stop(&mut encoder);
        let read = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: Stopwatch::BYTES as u64,
            usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        encoder.copy_buffer_to_buffer(resolved, 0, &read, 0, Stopwatch::BYTES as u64);
        queue.submit([encoder.finish()]);
        read.map_async(wgpu::MapMode::Read, .., |result| result.unwrap());
        device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        let bytes: [u8; Stopwatch::BYTES] = read.get_mapped_range(..).unwrap()[..].try_into().unwrap();
        let [start, stop]: [u64; 2] = bytemuck::cast(bytes);
        assert!(0 < start && start <= stop, "{start} and {stop}");
    }
}
