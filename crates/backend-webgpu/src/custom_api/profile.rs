//! How long a kernel takes.

use std::time::{Duration, Instant};

use backend_api::{BackendError, BackendResult, Bound, ComputeBackend as _};

use super::{Comparison, Expected};
use crate::WebGpuBackend;
use crate::custom::Kernel;

/// The least time of a sample: shorter kernels are launched several times in each.
const SAMPLE: Duration = Duration::from_micros(500);

/// Launches of a sample, at most.
const MAX_LAUNCHES: u32 = 256;

/// What is measured, and how long.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProfileOptions {
    /// How long the kernel runs before it is measured. A GPU that was idle runs at a lower clock for a while.
    pub warm_up: Duration,
    /// Samples, at most.
    pub samples: usize,
    /// No sample begins later than this after the first; there is at least one.
    pub max_time: Duration,
    /// Bytes that a launch reads and writes, for the bandwidth.
    pub bytes: Option<f64>,
    /// Floating-point operations of a launch, for the throughput.
    pub flops: Option<f64>,
    /// What bindings should hold after the first launch.
    pub expected: Vec<Expected>,
}

impl Default for ProfileOptions {
    fn default() -> Self {
        Self {
            warm_up: Duration::from_millis(300),
            samples: 50,
            max_time: Duration::from_secs(5),
            bytes: None,
            flops: None,
            expected: Vec::new(),
        }
    }
}

/// How long a kernel took.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Profile {
    /// What measured the time.
    pub clock: Clock,
    /// Samples.
    pub samples: usize,
    /// Launches of each sample, whose time is divided by this.
    pub launches_per_sample: u32,
    /// The median time of a launch, in seconds.
    pub median: f64,
    /// The time that a tenth of the samples stayed below, in seconds.
    pub p10: f64,
    /// The time that nine tenths of the samples stayed below, in seconds.
    pub p90: f64,
    /// The shortest time, in seconds.
    pub min: f64,
    /// The longest time, in seconds.
    pub max: f64,
    /// 10⁹ bytes in a second at the median time, of the bytes that the caller counts.
    pub gb_per_s: Option<f64>,
    /// 10⁹ floating-point operations in a second at the median time, of those that the caller counts.
    pub gflop_per_s: Option<f64>,
    /// What the bindings held after the first launch, compared with what was expected.
    pub comparisons: Vec<Comparison>,
}

/// What measures time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Clock {
    /// The device's timestamps: launches alone.
    Device,
    /// The host's clock, on a device without timestamps: with recording, submission and the wait.
    Host,
}

impl WebGpuBackend {
    /// Measures a launch, after comparing what a first one writes. `bindings`, `params` and `grid` are those of
    /// [`launch`](Self::launch); what is written is written again by each launch. No other thread should use the
    /// device meanwhile.
    ///
    /// # Errors
    /// What [`launch`](Self::launch) returns; [`Shape`](BackendError::Shape) and
    /// [`BufferTooSmall`](BackendError::BufferTooSmall) for what is expected, before anything is launched;
    /// [`Timeout`](BackendError::Timeout) if a launch doesn't end.
    pub fn profile(
        &self,
        kernel: &Kernel,
        bindings: &[u64],
        params: &[u8],
        grid: [u32; 3],
        options: &ProfileOptions,
    ) -> BackendResult<Profile> {
        let launch = |count: u32| -> BackendResult<()> {
            (0..count).try_for_each(|_| self.launch(kernel, bindings, params, grid))
        };
        // Before anything is launched: a capture would keep the launch, though it can't be measured there.
        drop(self.context("profile")?);
        self.check_expected(bindings, &options.expected)?;
        launch(1)?;
        let comparisons = self.compare_bindings(bindings, &options.expected)?;
        self.synchronize()?;
        let per_launch = self.warm_up_kernel(options.warm_up, launch)?;
        let count =
            (SAMPLE.as_secs_f64() / per_launch.max(1e-9)).ceil().clamp(1.0, f64::from(MAX_LAUNCHES)) as u32;

        let clock = if self.capabilities()?.timestamps { Clock::Device } else { Clock::Host };
        let (start, mut times) = (Instant::now(), Vec::new());
        while times.is_empty() || (times.len() < options.samples && start.elapsed() < options.max_time) {
            let time = match clock {
                Clock::Device => self.time(|_| launch(count))?,
                Clock::Host => self.host_time(count, launch)?,
            };
            times.push(time.as_secs_f64() / f64::from(count));
        }
        times.sort_by(f64::total_cmp);
        let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
        let median = at(0.5);
        // A time of 0 is below the clock's resolution.
        let rate = |amount: Option<f64>| amount.filter(|_| median > 0.0).map(|amount| amount / median * 1e-9);
        Ok(Profile {
            clock,
            samples: times.len(),
            launches_per_sample: count,
            median,
            p10: at(0.1),
            p90: at(0.9),
            min: at(0.0),
            max: at(1.0),
            gb_per_s: rate(options.bytes),
            gflop_per_s: rate(options.flops),
            comparisons,
        })
    }

    /// Compares bindings with what they should hold, as [`profile`](Self::profile) does after its first launch.
    ///
    /// # Errors
    /// [`Shape`](BackendError::Shape) for a binding that isn't among `bindings` and for bytes that aren't whole elements,
    /// [`BufferTooSmall`](BackendError::BufferTooSmall) for more than a binding has, and what
    /// [`copy_dtoh`](backend_api::ComputeBackend::copy_dtoh) returns.
    pub fn compare_bindings(
        &self,
        bindings: &[u64],
        expected: &[Expected],
    ) -> BackendResult<Vec<Comparison>> {
        self.check_expected(bindings, expected)?;
        let compare = |expected: &Expected| {
            let mut found = vec![0; expected.bytes.len()];
            self.copy_dtoh(&mut found, bindings[expected.binding])?;
            Ok(expected.compare(&found))
        };
        expected.iter().map(compare).collect()
    }

    /// Whether bindings can be compared with what they should hold.
    fn check_expected(&self, bindings: &[u64], expected: &[Expected]) -> BackendResult<()> {
        let (op, arg) = ("compare_bindings", "bindings");
        for expected in expected {
            let (what, max) = ("binding of an expectation", Bound::LessThan(bindings.len()));
            let out_of_range = BackendError::Shape { op, what, expected: max, got: expected.binding };
            let &ptr = bindings.get(expected.binding).ok_or(out_of_range)?;
            let (item, got) = (expected.dtype.size(), expected.bytes.len());
            if !got.is_multiple_of(item) {
                let (what, expected) = ("bytes of an expectation", Bound::MultipleOf(item));
                return Err(BackendError::Shape { op, what, expected, got });
            }
            let have = self.context(op)?.device().memory.lookup(op, arg, ptr)?.len;
            if have < got {
                return Err(BackendError::BufferTooSmall { op, arg, have, need: got });
            }
        }
        Ok(())
    }

    /// Launches until the time is over; the seconds of a launch by the host's clock, of which half a batch each
    /// is waited for.
    fn warm_up_kernel(
        &self,
        time: Duration,
        launch: impl Fn(u32) -> BackendResult<()>,
    ) -> BackendResult<f64> {
        let start = Instant::now();
        let mut count = 1;
        loop {
            let took = self.host_time(count, &launch)?;
            if start.elapsed() >= time {
                return Ok(took.as_secs_f64() / f64::from(count));
            }
            if took < SAMPLE {
                count = (count * 2).min(MAX_LAUNCHES);
            }
        }
    }

    fn host_time(&self, count: u32, launch: impl Fn(u32) -> BackendResult<()>) -> BackendResult<Duration> {
        let start = Instant::now();
        launch(count)?;
        self.synchronize()?;
        Ok(start.elapsed())
    }
}
