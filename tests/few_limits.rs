//! The conformance suite, sampled, on devices that a caller has opened with less than their adapters have: the limits that
//! every device of WebGPU has and no features, f16 without subgroups, and limits that are no round numbers.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use backend_api::{BinaryOp, ComputeBackend as _, ErrorKind, UnaryOp};
use backend_webgpu::WebGpuBackend;
use conformance::{Arena, Case, Outcome, cases};
use suites::{BackendUnderTest, Filter, Sample, Shard};

use super::within_blocks::LISTED;
use super::{expect_all, opened, read, text};

/// What a device is opened with.
pub(super) struct Opening {
    pub(super) name: &'static str,
    features: wgpu::Features,
    lower: fn(&mut wgpu::Limits),
    /// Bytes of the block in which operands lie, where they may be more than a buffer has room for.
    block: Option<usize>,
}

/// One in how many conformance cases is run, which is one of most families.
const EVERY: usize = 768;

/// Families whose kernels take a software driver as long to compile as those of all others together; `attention` and `conv2d`
/// have most of them. They run where `CASE` names them.
const SLOW: [&str; 2] = ["attention_ext", "conv_transpose2d"];

/// Bytes that are not whole vectors, of a buffer and of a binding: hardly more than the least that is taken.
const ODD: u64 = (64 << 10) + 12;
const ODD_BINDING: u64 = (64 << 10) + 4;

/// Launches of a graph whose parameters fill more than one buffer of so many bytes.
const LAUNCHES: usize = 300;

pub(super) const OPENINGS: [Opening; 3] = [
    Opening { name: "defaults", features: wgpu::Features::empty(), lower: |_| {}, block: None },
    Opening { name: "f16", features: wgpu::Features::SHADER_F16, lower: |_| {}, block: None },
    Opening {
        name: "odd",
        features: wgpu::Features::IMMEDIATES,
        lower: |limits| {
            (limits.max_buffer_size, limits.max_storage_buffer_binding_size) = (ODD, ODD_BINDING);
            limits.max_uniform_buffer_binding_size = 16 << 10;
            limits.max_compute_workgroup_size_z = 1;
            limits.max_immediate_size = 64;
        },
        block: Some(2 << 20),
    },
];

impl Opening {
    /// A backend on a device of the adapter under test that is opened so.
    fn open(&self, tested: &BackendUnderTest) -> Result<WebGpuBackend, String> {
        let (instance, adapter, device, queue) = opened::open(tested, |adapter| {
            let mut limits = wgpu::Limits::default().or_worse_values_from(&adapter.limits());
            (self.lower)(&mut limits);
            wgpu::DeviceDescriptor {
                required_features: adapter.features() & self.features,
                required_limits: limits,
                ..Default::default()
            }
        })?;
        WebGpuBackend::from_wgpu(instance, adapter, device, queue).map_err(text)
    }

    /// Runs the sample.
    pub(super) fn check(&self, tested: &BackendUnderTest) -> Result<(), String> {
        let backend = self.open(tested)?;
        last_elements(&backend)?;
        many_launches(&backend)?;
        let arena = self.block.map(|block| Arena::new(&backend, block)).transpose().map_err(text)?;
        let sample = Sample::nested(&backend.device_info().map_err(text)?, EVERY)?;
        let shard = Shard::from_environment()?;
        let filter = Filter::from_environment();
        let mut families: BTreeMap<&str, Vec<Case>> = BTreeMap::new();
        let fits = |case: &Case| self.block.is_none() || case.is_one_call();
        let is_quick = |case: &Case| !SLOW.contains(&case.family) || !filter.is_empty();
        let chosen = |case: &Case| {
            let path = case.path();
            filter.has(&path) && shard.has(&path) && fits(case) && is_quick(case)
        };
        for case in cases().into_iter().filter(chosen) {
            families.entry(case.family).or_default().push(case);
        }
        let (mut right, mut limited, mut failures) = (0, 0, Vec::new());
        for cases in families.values() {
            sample.run(cases, |case| {
                let run = || match &arena {
                    Some(arena) => case.run_within(&backend, arena),
                    None => case.run(&backend),
                };
                match catch_unwind(AssertUnwindSafe(run)) {
                    Ok(Ok(Outcome::Right)) => right += 1,
                    // What needs f16 doesn't count where there is none.
                    Ok(Ok(Outcome::Refused)) => return false,
                    Ok(Ok(Outcome::Limited)) => limited += 1,
                    Ok(Err(failure)) => failures.push(failure.to_string()),
                    Err(_) => failures.push(format!("{} panicked", case.path())),
                }
                true
            });
        }
        println!("{right} cases right, {limited} refused as Limit, {} kernels", backend.compiled_kernels());
        if failures.is_empty() {
            return Ok(());
        }
        let failed = failures.len();
        failures.truncate(LISTED);
        Err(format!("{failed} failures:\n{}", failures.join("\n")))
    }
}

/// Elements up to the end of the largest buffer: vectors of them are whole.
fn last_elements(backend: &WebGpuBackend) -> Result<(), String> {
    let largest = backend.device().ok_or("no device")?.limits().max_buffer_size;
    // A larger one takes a CPU too long.
    let n = (largest.min(1 << 20) / 4) as usize;
    let [x, y] = [backend.alloc(4 * n).map_err(text)?, backend.alloc(4 * n).map_err(text)?];
    backend.copy_htod(x, bytemuck::cast_slice(&vec![-2f32; n])).map_err(text)?;
    backend.unary(UnaryOp::Abs, x, y, n).map_err(text)?;
    expect_all("the absolute value of -2", &read(backend, y, n).map_err(text)?, 2.0)?;
    let timed = backend.time(|backend| backend.unary(UnaryOp::Abs, x, y, n));
    match timed.map_err(|error| error.kind()) {
        Err(ErrorKind::Unsupported) => {}
        other => return Err(format!("time without timestamps gave {other:?}")),
    }
    [x, y].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
}

/// A graph whose parameters are in uniform buffers, as there are no immediates for them.
fn many_launches(backend: &WebGpuBackend) -> Result<(), String> {
    let [one, sum] = [backend.alloc(4).map_err(text)?, backend.alloc(4).map_err(text)?];
    backend.copy_htod(one, bytemuck::bytes_of(&1f32)).map_err(text)?;
    backend.copy_htod(sum, bytemuck::bytes_of(&0f32)).map_err(text)?;
    let graph = backend.capture(&mut |recorded| {
        (0..LAUNCHES).try_for_each(|_| recorded.binary(BinaryOp::Add, sum, one, sum, 1))
    });
    let graph = graph.map_err(text)?;
    backend.replay(graph).map_err(text)?;
    expect_all("a sum of ones", &read(backend, sum, 1).map_err(text)?, LAUNCHES as f32)?;
    backend.free_graph(graph).map_err(text)?;
    [one, sum].into_iter().try_for_each(|ptr| backend.free(ptr)).map_err(text)
}
