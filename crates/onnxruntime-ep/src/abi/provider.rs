//! The provider of one session: which nodes it takes, and the plans that it makes of them.

use std::ffi::c_char;
use std::ptr;
use std::sync::Arc;

use backend_api::ComputeBackend;
use ort_sys::{OrtGraph, OrtNode, OrtStatusPtr};

use super::api::{ep_api, profiling_api};
use super::graph::{self, Constants};
use super::log::Logger;
use super::status::{check, guard, guard_value};
use super::tables::{
    API_VERSION, Ep, EpProfiler, GraphSupportInfo, NodeComputeInfo, NodeFusionOptions, PROFILING_VERSION,
};
use super::{compute, profiler};
use crate::claim::{Claim, claim};
use crate::devices::{Device, require_own_process};
use crate::error::{Error, Result};
use crate::half_precision::halve;
use crate::options::{NAME, Options, Precision};
use crate::plan::Plan;
use crate::profile::Profilers;

/// ONNX Runtime's table, and what it doesn't look at behind it.
#[repr(C)]
struct Provider {
    table: Ep,
    backend: Arc<dyn ComputeBackend>,
    options: Options,
    logger: Logger,
    profilers: Arc<Profilers>,
}

/// A provider that computes on `device`; `release` gives it back.
pub(super) fn create(device: &Device, options: Options, logger: Logger) -> Result<*mut Ep> {
    require_own_process()?;
    let backend = device.backend()?;
    let info = &device.info;
    logger.info(&format!("computing on {} ({}, {})", info.name, info.api, info.selector));
    let table = Ep {
        // ONNX Runtime reads no field that the version doesn't have.
        ort_version_supported: if profiling_api().is_ok() { PROFILING_VERSION } else { API_VERSION },
        GetName: name,
        GetCapability: capability,
        Compile: compile,
        ReleaseNodeComputeInfos: release_compiled,
        GetPreferredDataLayout: None,
        ShouldConvertDataLayoutForOp: None,
        SetDynamicOptions: None,
        OnRunStart: None,
        OnRunEnd: None,
        CreateAllocator: None,
        CreateSyncStreamForDevice: None,
        GetCompiledModelCompatibilityInfo: None,
        GetKernelRegistry: None,
        IsConcurrentRunSupported: None,
        Sync: None,
        CreateProfiler: create_profiler,
    };
    let profilers = Arc::default();
    Ok(Box::into_raw(Box::new(Provider { table, backend, options, logger, profilers })).cast())
}

/// # Safety
/// `ep` must be one of `create`'s, and isn't used afterwards.
pub(super) unsafe fn release(ep: *mut Ep) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(ep.cast::<Provider>()) });
}

/// # Safety
/// `ep` must be one of `create`'s, not yet released.
unsafe fn provider<'a>(ep: *const Ep) -> &'a Provider {
    // SAFETY: the table is the first field of what `create` made.
    unsafe { &*ep.cast::<Provider>() }
}

unsafe extern "system" fn name(_this: *const Ep) -> *const c_char {
    c"WebGpuComputeExecutionProvider".as_ptr()
}

unsafe extern "system" fn capability(
    this: *mut Ep,
    graph: *const OrtGraph,
    info: *mut GraphSupportInfo,
) -> OrtStatusPtr {
    guard(|| {
        // SAFETY: ONNX Runtime passes the provider back.
        let provider = unsafe { provider(this) };
        // SAFETY: the graph is valid for the call.
        let read = unsafe { graph::read(graph, Constants::Small, &provider.backend)? };
        let Some((graph, nodes)) = read else { return Ok(()) };
        let Claim { subgraphs, refused } = claim(&graph, &provider.options, &*provider.backend)?;
        for (node, reason) in &refused {
            provider.logger.info(&format!("left to ONNX Runtime: {node}: {reason}"));
        }
        let options =
            NodeFusionOptions { ort_version_supported: API_VERSION, drop_constant_initializers: true };
        for subgraph in subgraphs {
            let nodes: Vec<_> = subgraph.iter().filter_map(|&node| nodes.get(node).copied()).collect();
            // SAFETY: the nodes are the graph's own, and the list is as long as the call says.
            unsafe { fuse(info, &nodes, &options)? };
        }
        Ok(())
    })
}

/// # Safety
/// All pointers must be valid.
unsafe fn fuse(
    info: *mut GraphSupportInfo,
    nodes: &[*const OrtNode],
    options: &NodeFusionOptions,
) -> Result<()> {
    let api = ep_api()?;
    // SAFETY: the caller's promise.
    let status =
        unsafe { (api.EpGraphSupportInfo_AddNodesToFuse)(info, nodes.as_ptr(), nodes.len(), options) };
    check("EpGraphSupportInfo_AddNodesToFuse", status)
}

unsafe extern "system" fn compile(
    this: *mut Ep,
    graphs: *const *const OrtGraph,
    fused_nodes: *const *const OrtNode,
    count: usize,
    infos: *mut *mut NodeComputeInfo,
    _context_nodes: *mut *mut OrtNode,
) -> OrtStatusPtr {
    guard(|| {
        // SAFETY: ONNX Runtime passes the provider back.
        let provider = unsafe { provider(this) };
        if provider.options.context {
            return Err(Error::invalid(format!(
                "{NAME} makes no EPContext nodes, which ep.context_enable and a ModelCompiler ask for"
            )));
        }
        for i in 0..count {
            // SAFETY: the three lists have `count` elements, of which those of the last may be written.
            unsafe { infos.add(i).write(ptr::null_mut()) };
        }
        for i in 0..count {
            // SAFETY: as before; graphs and nodes are valid for the call.
            unsafe {
                let plan = plan(provider, *graphs.add(i), *fused_nodes.add(i))?;
                infos.add(i).write(compute::create(plan, provider.logger));
            }
        }
        Ok(())
    })
}

/// # Safety
/// All pointers must be valid.
unsafe fn plan(provider: &Provider, graph: *const OrtGraph, fused: *const OrtNode) -> Result<Plan> {
    // SAFETY: the caller's promise.
    let (read, [inputs, outputs]) =
        unsafe { (graph::read(graph, Constants::All, &provider.backend)?, graph::signature(fused)?) };
    let (mut graph, _) = read.ok_or_else(|| Error::invalid("a branch or loop can't be compiled"))?;
    (graph.inputs, graph.outputs) = (inputs, outputs);
    let nodes = graph.nodes.len();
    if provider.options.precision == Precision::F16 {
        if provider.backend.capabilities()?.f16 {
            halve(&mut graph, &provider.backend)?;
        } else {
            provider.logger.info("the device has no f16: computing in f32");
        }
    }
    let mut plan = Plan::new(graph, &provider.backend)?;
    if provider.options.precision == Precision::EmulatedF32 {
        plan.emulate_f32();
    }
    plan.profilers = Arc::clone(&provider.profilers);
    provider.logger.info(&format!("{nodes} nodes in {} steps: {}", plan.steps.len(), plan.operators()));
    Ok(plan)
}

unsafe extern "system" fn create_profiler(this: *mut Ep, out: *mut *mut EpProfiler) -> OrtStatusPtr {
    guard(|| {
        // SAFETY: ONNX Runtime passes the provider back, and a place for the profiler.
        unsafe { out.write(profiler::create(&provider(this).profilers)) };
        Ok(())
    })
}

unsafe extern "system" fn release_compiled(_this: *mut Ep, infos: *mut *mut NodeComputeInfo, count: usize) {
    guard_value((), || {
        for i in 0..count {
            // SAFETY: the list has `count` elements, each null or made by `compute::create`.
            unsafe {
                let info = *infos.add(i);
                if !info.is_null() {
                    compute::release(info);
                }
            }
        }
        Ok(())
    });
}
