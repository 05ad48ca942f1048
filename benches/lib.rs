//! What every bench shares: the backend under test, operands, and timing by the device's clock.

pub mod rows;
pub mod shapes;

use std::time::{Duration, Instant};

use backend_api::{BackendPreference, BackendResult, ComputeBackend, DType, DeviceInfo, Registry};
use backend_webgpu::WebGpuBackend;
use criterion::{BenchmarkId, Criterion, Throughput};
use half::f16;

/// Elements after which numbers of operands repeat: odd, so that rows of sizes in use differ.
const PERIOD: usize = (1 << 20) + 1;

/// Ten samples of a benchmark in so many seconds, unless the command line says otherwise.
#[must_use]
pub fn criterion(seconds: u64) -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(seconds))
        .sample_size(10)
        .configure_from_args()
}

/// The backend that the environment variable `COMPUTE_BACKEND` names, or the best one.
#[derive(Debug)]
pub struct Subject {
    backend: Opened,
    device: DeviceInfo,
}

#[derive(Debug)]
enum Opened {
    WebGpu(Box<WebGpuBackend>),
    Other(Box<dyn ComputeBackend>),
}

impl Subject {
    /// Opens the backend and says which it is.
    ///
    /// # Panics
    /// If there is none: a bench without a backend has nothing to say.
    #[must_use]
    pub fn open() -> Self {
        let mut registry = Registry::new();
        backend_webgpu::register(&mut registry);
        backend_cpu::register(&mut registry);
        let selection = registry.create_preferred(BackendPreference::Auto).expect("a backend opens");
        let device = selection.device;
        eprintln!("{} = {} ({}): {}", device.selector, device.name, device.api, selection.reason);
        let backend = match device.selector.strip_prefix("webgpu:") {
            // Opened again by its own type, which has the device's clock.
            Some(selector) => {
                let mut backend = WebGpuBackend::select(selector);
                backend.init().expect("the adapter opens a second time");
                Opened::WebGpu(Box::new(backend))
            }
            None => Opened::Other(selection.backend),
        };
        Self { backend, device }
    }

    /// The backend.
    #[must_use]
    pub fn backend(&self) -> &dyn ComputeBackend {
        match &self.backend {
            Opened::WebGpu(backend) => backend.as_ref(),
            Opened::Other(backend) => backend.as_ref(),
        }
    }

    /// The backend by its own type, if it is that of WebGPU.
    #[must_use]
    pub fn webgpu(&self) -> Option<&WebGpuBackend> {
        match &self.backend {
            Opened::WebGpu(backend) => Some(backend),
            Opened::Other(_) => None,
        }
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &DeviceInfo {
        &self.device
    }

    /// Two lines of one operation: the host's time, and where the device has a clock, the device's as `…/device`. Lines that
    /// the command line leaves out call nothing.
    pub fn measure(
        &self,
        criterion: &mut Criterion,
        group: &str,
        name: &str,
        throughput: Throughput,
        work: impl Fn(&dyn ComputeBackend) -> BackendResult<()>,
    ) {
        let mut group = criterion.benchmark_group(group);
        group.throughput(throughput);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter_custom(|iterations| self.wall(iterations, &work));
        });
        if self.clock().is_some() {
            group.bench_function(BenchmarkId::new(name, "device"), |bencher| {
                bencher.iter_custom(|iterations| self.device_time(iterations, &work).unwrap_or_default());
            });
        }
        group.finish();
    }

    /// Host time of `iterations` calls of `work` and of waiting for them.
    ///
    /// # Panics
    /// If `work` fails.
    pub fn wall(&self, iterations: u64, work: impl Fn(&dyn ComputeBackend) -> BackendResult<()>) -> Duration {
        let backend = self.backend();
        let start = Instant::now();
        for _ in 0..iterations {
            work(backend).expect("the operation succeeds");
        }
        backend.synchronize().expect("the device finishes");
        start.elapsed()
    }

    /// Device time of `iterations` calls of `work`, where the device has a clock.
    ///
    /// # Panics
    /// If `work` fails.
    pub fn device_time(
        &self,
        iterations: u64,
        work: impl Fn(&dyn ComputeBackend) -> BackendResult<()>,
    ) -> Option<Duration> {
        let time = self.clock()?.time(|backend| (0..iterations).try_for_each(|_| work(backend)));
        Some(time.expect("the operation succeeds"))
    }

    /// The backend whose device has a clock.
    fn clock(&self) -> Option<&WebGpuBackend> {
        let has_clock = self.backend().capabilities().is_ok_and(|capabilities| capabilities.timestamps);
        self.webgpu().filter(|_| has_clock)
    }

    /// Whether tensors of `dtype` can be used.
    #[must_use]
    pub fn supports(&self, dtype: DType) -> bool {
        dtype != DType::F16 || self.backend().capabilities().is_ok_and(|capabilities| capabilities.f16)
    }

    /// An operand of numbers in [−1, 1), equal in each run. Not zeros, on which hardware is faster. Large ones repeat after
    /// 2²⁰ + 1 elements, so that the weights of a large model are made in moments.
    ///
    /// # Panics
    /// If there is no memory for it.
    #[must_use]
    pub fn operand(&self, dtype: DType, elements: usize) -> u64 {
        let mut state = 1u64;
        let numbers = (0..elements.min(PERIOD)).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        });
        let mut bytes: Vec<u8> = match dtype {
            DType::F16 => numbers.flat_map(|x| f16::from_f32(x).to_le_bytes()).collect(),
            _ => numbers.flat_map(f32::to_le_bytes).collect(),
        };
        if elements > PERIOD {
            bytes = bytes.repeat(elements.div_ceil(PERIOD));
            bytes.truncate(elements * dtype.size());
        }
        self.upload(&bytes)
    }

    /// An operand of equal `u32`, such as lengths.
    ///
    /// # Panics
    /// If there is no memory for it.
    #[must_use]
    pub fn words(&self, value: u32, elements: usize) -> u64 {
        self.upload(&value.to_le_bytes().repeat(elements))
    }

    /// A block table of u32, `[batch, blocks]`, for a pool of as many blocks, far from their order.
    ///
    /// # Panics
    /// If there is no memory for it.
    #[must_use]
    pub fn block_table(&self, batch: usize, blocks: usize) -> u64 {
        let all = (batch * blocks) as u64;
        // An odd step meets each of a power of two of them once.
        let step = all / 3 * 2 + 1;
        let bytes: Vec<u8> = (0..all).flat_map(|i| ((i * step % all) as u32).to_le_bytes()).collect();
        self.upload(&bytes)
    }

    fn upload(&self, bytes: &[u8]) -> u64 {
        let ptr = self.backend().alloc(bytes.len()).expect("memory for an operand");
        self.backend().copy_htod(ptr, bytes).expect("the operand is uploaded");
        ptr
    }

    /// Gives operands back.
    ///
    /// # Panics
    /// If one is not an operand.
    pub fn free(&self, operands: &[u64]) {
        for &ptr in operands {
            self.backend().free(ptr).expect("an operand");
        }
    }
}
