//! What goes wrong beside the arguments: a lost device, no device, no memory, a foreign device, a panicking
//! thread.
//!
//! Faults of the whole process (no driver, little address space) happen in a child: this program again, with
//! [`child::VARIABLE`] naming what to do.

#[path = "../deadline.rs"]
mod deadline;
#[path = "../opened.rs"]
mod opened;

mod budget;
mod child;
mod every_method;
mod interop;
mod lifecycle;
mod loss;
mod no_adapter;
mod out_of_memory;
mod program;
mod refused;
mod refused_memory;
mod reimported;
mod strides;
mod timeout;
mod used_memory;
mod waits;

use std::process::ExitCode;
use std::sync::Arc;

use backend_api::{DeviceInfo, DeviceKind};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use suites::{BackendUnderTest, backends};

fn main() -> ExitCode {
    if let Some(exit_code) = child::run() {
        return exit_code;
    }
    let mut arguments = Arguments::from_args();
    // Tests of memory and of time limits must not disturb each other.
    arguments.test_threads = Some(1);
    let mut trials = vec![trial("in_time/no_adapter", no_adapter::run)];
    for tested in backends() {
        trials.extend(for_every_backend(&Arc::new(tested)));
    }
    suites::run(&arguments, trials).exit_code()
}

fn trial(name: impl Into<String>, run: impl FnOnce() -> Result<(), String> + Send + 'static) -> Trial {
    Trial::test(format!("faults/{}", name.into()), move || run().map_err(Failed::from))
}

type Check = fn(&BackendUnderTest) -> Result<(), String>;
/// Why a device is left out, if it is.
type WhyNot = fn(&DeviceInfo) -> Option<&'static str>;

/// The tests of a backend. Those called `in_time/…` expect something within a second or so: `cargo xtask test` runs them
/// with no other program beside them.
fn for_every_backend(tested: &Arc<BackendUnderTest>) -> Vec<Trial> {
    let mut checks: Vec<(&str, Check)> = vec![
        ("budget", budget::run),
        ("init_is_idempotent", lifecycle::init_is_idempotent),
        ("a_panicking_thread", lifecycle::a_panicking_thread),
        ("strides_that_lead_nowhere", strides::run),
    ];
    let is_webgpu = tested.selector.starts_with("webgpu");
    if is_webgpu {
        checks.extend::<[(&str, Check); 19]>([
            ("not_initialized", lifecycle::not_initialized),
            ("in_time/loss", loss::run),
            ("in_time/timeout", timeout::run),
            ("from_wgpu", interop::from_wgpu),
            ("from_wgpu_with_low_limits", interop::from_wgpu_with_low_limits),
            ("from_wgpu_with_another_queue", interop::from_wgpu_with_another_queue),
            ("export_and_import", interop::export_and_import),
            ("import_of_unfit_buffers", interop::unfit_buffers),
            ("import_of_known_buffers", interop::known_buffers),
            ("import_of_buffers_in_use", reimported::run),
            ("the_largest_allocation", interop::largest_allocation),
            ("refused/staging_comes_back", refused::staging_comes_back),
            ("refused/every_thread_is_told", refused::every_thread_is_told),
            ("refused/a_read", refused::a_read_of_a_refused_batch),
            ("refused_memory", refused_memory::run),
            ("refused/reused_memory_is_whole", refused::reused_memory_is_whole),
            ("in_time/waits", waits::run),
            ("in_time/waits_of_one_call", waits::of_one_call),
            ("in_time/waits_while_submitting", waits::while_submitting),
        ]);
    }
    let mut trials: Vec<Trial> = checks
        .into_iter()
        .map(|(name, check)| {
            let shared = Arc::clone(tested);
            trial(format!("{}/{name}", tested.slug), move || check(&shared))
        })
        .collect();
    if is_webgpu {
        let of_memory = |name: &str, why_not: WhyNot, check: Check| {
            let shared = Arc::clone(tested);
            Trial::ignorable_test(format!("faults/{}/{name}", tested.slug), move || {
                match why_not(&shared.backend()?.device_info().map_err(|e| e.to_string())?) {
                    Some(reason) => Ok(Completion::ignored_with(reason)),
                    None => Ok(check(&shared).map(|()| Completion::Completed)?),
                }
            })
        };
        trials.push(of_memory("out_of_memory", why_memory_cant_run_out, out_of_memory::run));
        trials.push(of_memory("used_memory_within_a_budget", why_memory_isnt_resident, used_memory::run));
    }
    trials
}

/// Only a software adapter's memory is the process's own.
fn why_memory_isnt_resident(device: &DeviceInfo) -> Option<&'static str> {
    if !cfg!(target_os = "linux") {
        return Some("/proc/self/status is of Linux");
    }
    if device.api == "Gl" {
        return Some("Mesa's OpenGL gives memory back when it likes");
    }
    (device.kind != DeviceKind::SoftwareAdapter).then_some("this device's memory isn't the process's")
}

/// Limiting the address space of a process starves only a Vulkan driver that allocates from it.
fn why_memory_cant_run_out(device: &DeviceInfo) -> Option<&'static str> {
    if !cfg!(target_os = "linux") {
        return Some("ulimit -v is of Linux");
    }
    if device.kind != DeviceKind::SoftwareAdapter || device.api != "Vulkan" {
        return Some("this driver's memory isn't limited by ulimit -v");
    }
    None
}
