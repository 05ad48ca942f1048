//! Runs of compiled subgraphs.

use std::ffi::c_void;
use std::ptr;

use ort_sys::{OrtKernelContext, OrtStatusPtr};

use super::api::api;
use super::log::Logger;
use super::status::{check, guard};
use super::tables::{API_VERSION, NodeComputeInfo};
use super::value::Value;
use crate::devices::require_own_process;
use crate::error::{Error, Result};
use crate::plan::Plan;
use crate::tensor::Tensor;

/// ONNX Runtime's table, and what it doesn't look at behind it.
#[repr(C)]
struct Compiled {
    table: NodeComputeInfo,
    plan: Plan,
    logger: Logger,
}

/// The table of a subgraph; `release` gives it back.
pub(super) fn create(plan: Plan, logger: Logger) -> *mut NodeComputeInfo {
    let table = NodeComputeInfo {
        ort_version_supported: API_VERSION,
        CreateState: create_state,
        Compute: compute,
        ReleaseState: release_state,
    };
    Box::into_raw(Box::new(Compiled { table, plan, logger })).cast()
}

/// # Safety
/// `info` must be one of `create`'s, and isn't used afterwards.
pub(super) unsafe fn release(info: *mut NodeComputeInfo) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(info.cast::<Compiled>()) });
}

/// A plan has no state of its own that a run changes.
unsafe extern "system" fn create_state(
    _this: *mut NodeComputeInfo,
    _context: *mut c_void,
    state: *mut *mut c_void,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a place for the state.
    unsafe { state.write(ptr::null_mut()) };
    OrtStatusPtr(ptr::null_mut())
}

unsafe extern "system" fn release_state(_this: *mut NodeComputeInfo, _state: *mut c_void) {}

unsafe extern "system" fn compute(
    this: *mut NodeComputeInfo,
    _state: *mut c_void,
    context: *mut OrtKernelContext,
) -> OrtStatusPtr {
    guard(|| {
        // SAFETY: the table is the first field of what `create` made; runs share it.
        let Compiled { plan, logger, .. } = unsafe { &*this.cast_const().cast::<Compiled>() };
        require_own_process()?;
        // SAFETY: the context is valid for the call.
        let inputs = unsafe { inputs(plan, context)? };
        let outputs = plan.run(inputs);
        plan.captures.messages().iter().for_each(|message| logger.info(message));
        let outputs = outputs?;
        for (i, output) in outputs.iter().enumerate() {
            let shape: Vec<i64> = output.shape.iter().map(|&extent| extent as i64).collect();
            // SAFETY: as before; the shape has as many extents as the call says.
            unsafe { store(context, i, &shape, output)? };
        }
        Ok(())
    })
}

/// # Safety
/// The context must be valid.
unsafe fn inputs(plan: &Plan, context: *const OrtKernelContext) -> Result<Vec<Option<Tensor>>> {
    let api = api()?;
    let load = |i| {
        let mut value = ptr::null();
        // SAFETY: the caller's promise.
        unsafe {
            check("KernelContext_GetInput", (api.KernelContext_GetInput)(context, i, &raw mut value))?;
        }
        if value.is_null() {
            return Ok(None);
        }
        // SAFETY: the context's values live as long as the context.
        let value = unsafe { Value::new(value)? };
        value.load(plan.backend()).map(Some)
    };
    (0..plan.inputs().len()).map(load).collect()
}

/// # Safety
/// The context must be valid.
unsafe fn store(context: *mut OrtKernelContext, i: usize, shape: &[i64], tensor: &Tensor) -> Result<()> {
    let api = api()?;
    let mut value = ptr::null_mut();
    // SAFETY: the caller's promise.
    let status =
        unsafe { (api.KernelContext_GetOutput)(context, i, shape.as_ptr(), shape.len(), &raw mut value) };
    check("KernelContext_GetOutput", status)?;
    if value.is_null() {
        return Err(Error::invalid(format!("ONNX Runtime has no output {i}")));
    }
    // SAFETY: the context's values live as long as the context.
    unsafe { Value::new(value)? }.store(tensor)
}
