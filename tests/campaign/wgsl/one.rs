//! One mutated kernel: checked without a device, then compiled and launched on one.

use std::io::{BufRead, Write, stdin, stdout};
use std::time::Duration;

use backend_api::{BackendError, BackendResult, ComputeBackend, DeviceKind};
use backend_webgpu::{BindingAccess, Kernel, KernelDesc, WebGpuBackend, validate};

use super::texts;

pub(super) const REFUSED: &str = "refused";
pub(super) const TAKEN: &str = "taken";
pub(super) const LAUNCHED: &str = "launched";
pub(super) const ENDLESS: &str = "without an end";

/// What may become of a text.
pub(super) const ANSWERS: [&str; 4] = [REFUSED, TAKEN, LAUNCHED, ENDLESS];

/// How long a launch may take before it counts as one without an end.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Bytes of a binding beside the least: a few elements for arrays without a length, a part of one for matrices.
const MORE: usize = 48;

/// Bytes of the largest binding that is launched on.
const MOST: usize = 4 << 20;

/// Bytes of the guards before and after a binding; a multiple of the strictest alignment of a binding.
const GUARD: usize = 256;

/// Deals with the cases whose numbers it reads, one answer for each; until the input ends.
pub(super) fn serve(selector: &str, seed: &str) -> Result<(), String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let seed: u64 = seed.parse().map_err(|error: std::num::ParseIntError| told(&error))?;
    let device = match selector.strip_prefix("webgpu:") {
        Some(adapter) => Some(Device::open(adapter).map_err(|error| told(&error))?),
        None => None,
    };
    for line in stdin().lock().lines() {
        let line = line.map_err(|error| told(&error))?;
        let case = line.parse().map_err(|error: std::num::ParseIntError| told(&error))?;
        let text = texts::mutated(seed, case);
        let answer = one(device.as_ref(), &text, case).unwrap_or_else(|why| why.replace('\n', " "));
        println!("{answer}");
        stdout().flush().map_err(|error| told(&error))?;
    }
    if let Some(device) = device {
        // A kernel without an end would be waited for.
        std::mem::forget(device);
    }
    Ok(())
}

fn one(device: Option<&Device>, text: &str, case: u64) -> Result<String, String> {
    let valid = validate(text);
    let answer = match (device, &valid) {
        (None, Ok(_)) => TAKEN,
        (None, Err(_)) => REFUSED,
        (Some(device), _) => match device.backend.kernel(&KernelDesc::new("mutated", text)) {
            Ok(kernel) => device.launch(&kernel, case)?,
            // Valid by WebGPU's limits, which the device has too: it has to take the text.
            Err(error) if valid.is_ok() => return Err(format!("valid, and yet {error}")),
            Err(BackendError::Kernel { .. }) => REFUSED,
            Err(error) => return Err(format!("no error of a kernel: {error:?}")),
        },
    };
    Ok(answer.to_owned())
}

struct Device {
    backend: WebGpuBackend,
    /// Whether a kernel without an end does no harm to others.
    launches: bool,
}

/// A binding with guards around it.
struct Guarded {
    whole: u64,
    view: u64,
    bytes: Vec<u8>,
    is_written: bool,
}

impl Device {
    fn open(adapter: &str) -> BackendResult<Self> {
        let mut backend = WebGpuBackend::select(adapter);
        backend.init()?;
        backend.set_timeout(TIMEOUT)?;
        let info = backend.device_info()?;
        // OpenGL computes in the thread that calls, and a GPU may have to be reset.
        let launches = info.kind == DeviceKind::SoftwareAdapter && info.api != "Gl";
        Ok(Self { backend, launches })
    }

    fn launch(&self, kernel: &Kernel, case: u64) -> Result<&'static str, String> {
        if !self.launches || kernel.bindings().iter().any(|binding| binding.min_bytes > MOST) {
            return Ok(TAKEN);
        }
        let told = |error: BackendError| format!("on the way to a launch: {error:?}");
        let guarded = self.guarded(kernel, case).map_err(told)?;
        let views: Vec<u64> = guarded.iter().map(|binding| binding.view).collect();
        let params = bytes(case + 1, kernel.params().map_or(0, |params| params.bytes));
        self.backend
            .launch(kernel, &views, &params, [2, 1, 1])
            .map_err(|error| format!("launch: {error:?}"))?;
        match self.backend.synchronize() {
            Ok(()) => {}
            Err(BackendError::Timeout { .. }) => return Ok(ENDLESS),
            Err(error) => return Err(format!("after the launch: {error:?}")),
        }
        guarded.iter().try_for_each(|binding| self.check(binding))?;
        for Guarded { whole, view, .. } in guarded {
            self.backend.free(view).and_then(|()| self.backend.free(whole)).map_err(told)?;
        }
        Ok(LAUNCHED)
    }

    fn guarded(&self, kernel: &Kernel, case: u64) -> BackendResult<Vec<Guarded>> {
        let guarded = |(i, binding): (usize, &backend_webgpu::BindingInfo)| {
            let inner = (binding.min_bytes + MORE).next_multiple_of(4);
            let bytes = bytes(case + 17 * i as u64, 2 * GUARD + inner);
            let whole = self.backend.alloc(bytes.len())?;
            self.backend.copy_htod(whole, &bytes)?;
            let view = self.backend.view(whole, GUARD, inner)?;
            Ok(Guarded { whole, view, bytes, is_written: binding.access == BindingAccess::ReadWrite })
        };
        kernel.bindings().iter().enumerate().map(guarded).collect()
    }

    /// Guards, and what is only read, are as they were.
    fn check(&self, binding: &Guarded) -> Result<(), String> {
        let mut found = vec![0; binding.bytes.len()];
        self.backend.copy_dtoh(&mut found, binding.whole).map_err(|error| format!("reading: {error:?}"))?;
        let inner = GUARD..binding.bytes.len() - GUARD;
        let mut pairs = found.iter().zip(&binding.bytes).enumerate();
        match pairs.find(|(i, (found, was))| found != was && !(binding.is_written && inner.contains(i))) {
            Some((i, _)) => Err(format!("byte {i} changed of a binding at {inner:?}")),
            None => Ok(()),
        }
    }
}

/// Bytes that depend on `seed`: small numbers, as which they lead kernels far into their branches.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| if i % 4 == 0 { ((i / 4 * 7 + seed) % 23) as u8 } else { 0 }).collect()
}
