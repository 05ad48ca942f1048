//! Kernels of the caller's own: WGSL that is checked, reflected, compiled and launched like a built-in kernel.
//!
//! ```text
//! extent     the text is not too long and not nested too deeply for a compiler
//! check      naga parses and validates it, an entry point is chosen
//! faults     what naga says is wrong, with its place, for which unplaced looks where naga tells none
//! reasons    common faults of those in words
//! constants  pipeline-overridable constants get their values
//! limits     what naga doesn't check: sizes, counts, kinds of bindings, barriers
//! report     what reflection tells: bindings, parameters, workgroup size, memory
//! opengl     there, what GLSL leaves undefined is rewritten, and what it lays out otherwise is refused
//! compiled   bindings are renumbered as those of built-in kernels, the driver compiles it
//! launch     handles are checked against the report and recorded as one command
//! ```
//!
//! What recurses over a text runs on a thread with a large stack ([`stack`]), whose panic is an error of the
//! text's. Nothing bounds the memory that naga takes for the elements of arrays in constant expressions.

mod check;
mod compiled;
mod constants;
mod desc;
mod extent;
mod faults;
mod launch;
mod limits;
mod opengl;
mod reasons;
mod report;
mod stack;
mod types;
mod unplaced;

pub use compiled::Kernel;
pub(crate) use compiled::compile;
pub use desc::{KernelDesc, KernelLimits};
pub(crate) use launch::launch;
pub use report::{BindingAccess, BindingInfo, KernelReport, ParamField, ParamSpace, ParamsInfo};

use backend_api::Diagnostic;

/// Bytes of a kernel's parameters, at most.
pub const MAX_PARAM_BYTES: usize = crate::kernels::MAX_PARAMS as usize;

/// Storage buffers that a kernel binds, at most, where the device's own limit isn't lower: what every WebGPU
/// device has.
pub const MAX_STORAGE_BINDINGS: usize = 8;

/// Checks a kernel as [`WebGpuBackend::kernel`](crate::WebGpuBackend::kernel) does on a device with WebGPU's
/// default limits and no optional feature, without a device. The text has to have one entry point and no
/// constant without a value; [`validate_kernel`] takes more.
///
/// ```
/// let report = backend_webgpu::validate(
///     "@group(0) @binding(0) var<storage, read_write> x: array<f32>;
///      @compute @workgroup_size(64) fn double(@builtin(global_invocation_id) id: vec3<u32>) {
///          if id.x < arrayLength(&x) { x[id.x] *= 2.0; }
///      }",
/// )?;
/// assert_eq!((report.entry_point.as_str(), report.workgroup_size), ("double", [64, 1, 1]));
///
/// let error = backend_webgpu::validate("@compute @workgroup_size(64)\nfn double() { x = 1.0; }").unwrap_err();
/// assert_eq!(error.place.map(|place| (place.line, place.column)), Some((2, 15)));
/// # Ok::<(), backend_api::Diagnostic>(())
/// ```
///
/// # Errors
/// What is wrong, and where.
pub fn validate(wgsl: &str) -> Result<KernelReport, Diagnostic> {
    validate_kernel(&KernelDesc::new("kernel", wgsl), &KernelLimits::default())
}

/// [`validate`] for a device of the given limits and features.
///
/// # Errors
/// What is wrong, and where.
pub fn validate_kernel(desc: &KernelDesc, limits: &KernelLimits) -> Result<KernelReport, Diagnostic> {
    stack::run(|| check::check(desc, limits).map(|checked| checked.report))?
}
