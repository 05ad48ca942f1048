//! A kernel on its device.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use backend_api::{BackendError, BackendResult, Diagnostic};
use naga::{AddressSpace, ResourceBinding};

use super::check::{Checked, check};
use super::report::{BindingInfo, KernelReport, ParamsInfo};
use super::{BindingAccess, KernelDesc, KernelLimits, opengl, stack};
use crate::context::Context;
use crate::device::LastHandle;
use crate::kernels::{self, Signature};
use crate::ops::{OpContext, State};
use crate::sync::Mutex;

/// The compiled code of a device's kernels.
#[derive(Debug, Default)]
struct CompiledKernels {
    /// By the numbers of the kernels.
    code: Mutex<HashMap<u64, Arc<kernels::Kernel>>>,
    /// Below the code, which has handles of the device, as fields are dropped in their order: code may go after the
    /// device's own context.
    last: OnceLock<Arc<LastHandle>>,
}

impl CompiledKernels {
    /// Keeps the code of a kernel; the kernel's number, which no other one of the process has.
    fn insert(&self, code: Arc<kernels::Kernel>, device: &Context) -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        self.last.get_or_init(|| device.last_handle());
        self.code.lock().insert(id, code);
        id
    }
}

/// A compiled kernel of the caller's own, made by [`WebGpuBackend::kernel`](crate::WebGpuBackend::kernel).
///
/// It belongs to the device that it was compiled on. Dropping it lets go of the compiled code; what was
/// launched before runs all the same.
#[derive(Debug)]
pub struct Kernel {
    name: String,
    report: KernelReport,
    id: u64,
    /// What is remembered of the device, this kernel's code among it.
    home: Weak<State>,
}

impl Kernel {
    /// The name that it was given.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All that reflection tells.
    #[must_use]
    pub fn report(&self) -> &KernelReport {
        &self.report
    }

    /// The function that is launched.
    #[must_use]
    pub fn entry_point(&self) -> &str {
        &self.report.entry_point
    }

    /// The storage buffers, in the order in which a launch takes their handles.
    #[must_use]
    pub fn bindings(&self) -> &[BindingInfo] {
        &self.report.bindings
    }

    /// The parameters, if it has any.
    #[must_use]
    pub fn params(&self) -> Option<&ParamsInfo> {
        self.report.params.as_ref()
    }

    /// Invocations of a workgroup along x, y and z.
    #[must_use]
    pub fn workgroup_size(&self) -> [u32; 3] {
        self.report.workgroup_size
    }

    /// Bytes of workgroup memory.
    #[must_use]
    pub fn workgroup_bytes(&self) -> u64 {
        self.report.workgroup_bytes
    }

    /// The grid in which each of `counts` has an invocation along x, y and z.
    #[must_use]
    pub fn grid_for(&self, counts: [u32; 3]) -> [u32; 3] {
        std::array::from_fn(|axis| counts[axis].div_ceil(self.report.workgroup_size[axis].max(1)))
    }

    /// The compiled code.
    ///
    /// # Errors
    /// [`InvalidHandle`](BackendError::InvalidHandle) on another device than the kernel's.
    pub(super) fn on(&self, ctx: &OpContext, op: &'static str) -> BackendResult<Arc<kernels::Kernel>> {
        let is_home = self.home.ptr_eq(&Arc::downgrade(&ctx.state));
        let compiled =
            is_home.then(|| ctx.state.of::<CompiledKernels>().code.lock().get(&self.id).cloned()).flatten();
        compiled.ok_or(BackendError::InvalidHandle { op, arg: "kernel", ptr: self.id })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            // Bound, so that the lock is released before the code is dropped.
            let code = home.of::<CompiledKernels>().code.lock().remove(&self.id);
            drop(code);
        }
    }
}

/// Checks and compiles a kernel.
///
/// # Errors
/// [`Kernel`](BackendError::Kernel).
pub(crate) fn compile(ctx: &OpContext, desc: &KernelDesc) -> BackendResult<Kernel> {
    let _span = tracing::debug_span!("compile", kernel = desc.name).entered();
    let device = &ctx.device;
    let mut features = device.gpu.device.features();
    features.set(wgpu::Features::IMMEDIATES, device.pipelines.target().immediates);
    let allowed = KernelLimits::new(device.gpu.limits.clone(), features);
    let mut entry_point = desc.entry_point.clone().unwrap_or_default();
    // Drivers recurse over what they compile, too.
    let compiled = stack::run(|| {
        let mut checked = check(desc, &allowed)?;
        entry_point.clone_from(&checked.report.entry_point);
        if device.gpu.info.api == "Gl" {
            opengl::translate(&mut checked, &desc.wgsl)?;
        }
        let signature = signature(&checked);
        let (module, report) = renumbered(checked);
        let source = wgpu::ShaderSource::Naga(Cow::Owned(module));
        let code = device.pipelines.compile_custom(&desc.name, source, &report.entry_point, signature);
        code.map(|code| (code, report)).map_err(|error| Diagnostic::new(error.to_string()))
    });
    match compiled.and_then(std::convert::identity) {
        Ok((code, report)) => {
            let id = ctx.state.of::<CompiledKernels>().insert(Arc::new(code), &ctx.device);
            Ok(Kernel { name: desc.name.clone(), report, id, home: Arc::downgrade(&ctx.state) })
        }
        Err(source) => {
            let error = BackendError::Kernel { name: desc.name.clone(), variant: entry_point, source };
            Err(device.explain(error))
        }
    }
}

fn signature(checked: &Checked) -> Signature {
    let reads =
        checked.report.bindings.iter().filter(|binding| binding.access == BindingAccess::Read).count();
    let uniform = checked.params.map(|params| checked.module.global_variables[params].space);
    let writes = checked.report.bindings.len() - reads;
    Signature::new(reads, writes, uniform == Some(AddressSpace::Uniform))
}

/// The module with its bindings as built-in kernels have them: buffers in group 0, those that are only read
/// first; parameters in group 1.
fn renumbered(mut checked: Checked) -> (naga::Module, KernelReport) {
    let [reads, writes] = [BindingAccess::Read, BindingAccess::ReadWrite].map(|access| {
        let of = checked.bindings.iter().zip(&checked.report.bindings);
        of.filter(move |(_, info)| info.access == access).map(|(&handle, _)| handle).collect::<Vec<_>>()
    });
    for (binding, handle) in (0..).zip(reads.into_iter().chain(writes)) {
        let variable = checked.module.global_variables.get_mut(handle);
        variable.binding = Some(ResourceBinding { group: 0, binding });
    }
    if let Some(params) = checked.params {
        let variable = checked.module.global_variables.get_mut(params);
        let is_uniform = variable.space == AddressSpace::Uniform;
        variable.binding = is_uniform.then_some(ResourceBinding { group: 1, binding: 0 });
    }
    (checked.module, checked.report)
}
