//! Tables of ONNX Runtime's provider API at version 23, and what version 25 adds for profiles; `ort-sys` has only
//! the names.
//!
//! The order and types of the fields are those of `onnxruntime_ep_c_api.h`. Later versions append fields, and
//! look at ours only as far as the version in the first field reaches.
#![expect(non_snake_case, reason = "the fields are called as in the C header")]

use std::ffi::{c_char, c_void};
use std::mem::offset_of;

use ort_sys::{
    OrtAllocator, OrtEpDevice, OrtGraph, OrtHardwareDevice, OrtKernelContext, OrtKeyValuePairs, OrtLogger,
    OrtMemoryInfo, OrtNode, OrtSessionOptions, OrtStatusPtr, OrtSyncStream, OrtValue,
};

/// The version of ONNX Runtime's API that the library is built for.
pub(super) const API_VERSION: u32 = 23;

/// The version of the API from which on ONNX Runtime asks providers for profilers.
pub(super) const PROFILING_VERSION: u32 = 25;

/// A function that isn't called or not provided.
pub(super) type Unused = Option<unsafe extern "system" fn()>;

/// Types of which ONNX Runtime tells nothing but addresses.
macro_rules! opaque {
    ($($(#[$doc:meta])+ $name:ident;)+) => {
        $($(#[$doc])+
        #[derive(Debug)]
        #[repr(C)]
        pub(super) struct $name {
            _opaque: [u8; 0],
        })+
    };
}

opaque! {
    /// `OrtMemoryDevice`: where a tensor lies.
    MemoryDevice;
    /// `OrtEpGraphSupportInfo`: collects the nodes that a provider takes.
    GraphSupportInfo;
    /// `OrtProfilingEvent`.
    ProfilingEvent;
    /// `OrtProfilingEventsContainer`: the profile that events are added to.
    ProfilingEventsContainer;
}

/// `OrtEpApi`: functions for providers.
#[derive(Debug)]
#[repr(C)]
pub(super) struct EpApi {
    pub(super) CreateEpDevice: unsafe extern "system" fn(
        factory: *mut EpFactory,
        device: *const OrtHardwareDevice,
        metadata: *const OrtKeyValuePairs,
        options: *const OrtKeyValuePairs,
        out: *mut *mut OrtEpDevice,
    ) -> OrtStatusPtr,
    pub(super) ReleaseEpDevice: Unused,
    pub(super) EpGraphSupportInfo_AddNodesToFuse: unsafe extern "system" fn(
        info: *mut GraphSupportInfo,
        nodes: *const *const OrtNode,
        count: usize,
        options: *const NodeFusionOptions,
    ) -> OrtStatusPtr,
    pub(super) EpGraphSupportInfo_AddSingleNode: Unused,
    pub(super) NodeComputeContext_NodeName: Unused,
    pub(super) EpDevice_AddAllocatorInfo:
        unsafe extern "system" fn(device: *mut OrtEpDevice, info: *const OrtMemoryInfo) -> OrtStatusPtr,
    pub(super) MemoryInfo_GetMemoryDevice:
        unsafe extern "system" fn(info: *const OrtMemoryInfo) -> *const MemoryDevice,
    pub(super) Value_GetMemoryDevice:
        unsafe extern "system" fn(value: *const OrtValue) -> *const MemoryDevice,
    pub(super) MemoryDevice_AreEqual: Unused,
    pub(super) MemoryDevice_GetDeviceType: unsafe extern "system" fn(device: *const MemoryDevice) -> i32,
    pub(super) MemoryDevice_GetMemoryType: Unused,
    pub(super) MemoryDevice_GetVendorId: unsafe extern "system" fn(device: *const MemoryDevice) -> u32,
    pub(super) MemoryDevice_GetDeviceId: unsafe extern "system" fn(device: *const MemoryDevice) -> u32,
}

/// `OrtEpApi` at version 25, as far as its functions for profiles; to be read only where ONNX Runtime has that
/// version.
#[derive(Debug)]
#[repr(C)]
pub(super) struct ProfilingApi {
    _since_23: EpApi,
    /// What versions 23, 24 and 25 have up to here: streams, kernels of single operators, and schemas.
    _unused: [Unused; 52],
    pub(super) CreateProfilingEvent: unsafe extern "system" fn(
        category: ProfilingEventCategory,
        process: i32,
        thread: i32,
        name: *const c_char,
        start_us: i64,
        duration_us: i64,
        keys: *const *const c_char,
        values: *const *const c_char,
        count: usize,
        out: *mut *mut ProfilingEvent,
    ) -> OrtStatusPtr,
    pub(super) ReleaseProfilingEvent: unsafe extern "system" fn(event: *mut ProfilingEvent),
    /// `ProfilingEvent_GetCategory`, `GetName`, `GetTimestampUs`, `GetDurationUs` and `GetArgValue`.
    _getters: [Unused; 5],
    pub(super) ProfilingEventsContainer_AddEvents: unsafe extern "system" fn(
        container: *mut ProfilingEventsContainer,
        events: *const *const ProfilingEvent,
        count: usize,
    ) -> OrtStatusPtr,
}

/// The functions' places, which ONNX Runtime promises not to change.
const _: () = {
    assert!(offset_of!(ProfilingApi, CreateProfilingEvent) == 65 * size_of::<Unused>());
    assert!(offset_of!(ProfilingApi, ProfilingEventsContainer_AddEvents) == 72 * size_of::<Unused>());
};

/// `OrtProfilingEventCategory`, of which providers use one.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) enum ProfilingEventCategory {
    Kernel = 2,
}

/// `OrtEpProfilerImpl`: collects the provider's events.
#[derive(Debug)]
#[repr(C)]
pub(super) struct EpProfiler {
    pub(super) ort_version_supported: u32,
    pub(super) Release: unsafe extern "system" fn(this: *mut Self),
    pub(super) StartProfiling: unsafe extern "system" fn(this: *mut Self, offset_ns: i64) -> OrtStatusPtr,
    pub(super) StartEvent: unsafe extern "system" fn(this: *mut Self, id: u64) -> OrtStatusPtr,
    pub(super) StopEvent:
        unsafe extern "system" fn(this: *mut Self, id: u64, event: *const ProfilingEvent) -> OrtStatusPtr,
    pub(super) EndProfiling:
        unsafe extern "system" fn(this: *mut Self, container: *mut ProfilingEventsContainer) -> OrtStatusPtr,
}

/// `OrtNodeFusionOptions`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct NodeFusionOptions {
    pub(super) ort_version_supported: u32,
    pub(super) drop_constant_initializers: bool,
}

/// `OrtEpFactory`: offers devices and makes what sessions need of them.
#[derive(Debug)]
#[repr(C)]
pub(super) struct EpFactory {
    pub(super) ort_version_supported: u32,
    pub(super) GetName: unsafe extern "system" fn(this: *const Self) -> *const c_char,
    pub(super) GetVendor: unsafe extern "system" fn(this: *const Self) -> *const c_char,
    pub(super) GetSupportedDevices: unsafe extern "system" fn(
        this: *mut Self,
        devices: *const *const OrtHardwareDevice,
        count: usize,
        out: *mut *mut OrtEpDevice,
        capacity: usize,
        written: *mut usize,
    ) -> OrtStatusPtr,
    pub(super) CreateEp: unsafe extern "system" fn(
        this: *mut Self,
        devices: *const *const OrtHardwareDevice,
        metadata: *const *const OrtKeyValuePairs,
        count: usize,
        options: *const OrtSessionOptions,
        logger: *const OrtLogger,
        out: *mut *mut Ep,
    ) -> OrtStatusPtr,
    pub(super) ReleaseEp: unsafe extern "system" fn(this: *mut Self, ep: *mut Ep),
    pub(super) GetVendorId: unsafe extern "system" fn(this: *const Self) -> u32,
    pub(super) GetVersion: unsafe extern "system" fn(this: *const Self) -> *const c_char,
    pub(super) ValidateCompiledModelCompatibilityInfo: Unused,
    pub(super) CreateAllocator: unsafe extern "system" fn(
        this: *mut Self,
        info: *const OrtMemoryInfo,
        options: *const OrtKeyValuePairs,
        out: *mut *mut OrtAllocator,
    ) -> OrtStatusPtr,
    pub(super) ReleaseAllocator: unsafe extern "system" fn(this: *mut Self, allocator: *mut OrtAllocator),
    pub(super) CreateDataTransfer:
        unsafe extern "system" fn(this: *mut Self, out: *mut *mut DataTransfer) -> OrtStatusPtr,
    pub(super) IsStreamAware: unsafe extern "system" fn(this: *const Self) -> bool,
    pub(super) CreateSyncStreamForDevice: Unused,
}

/// `OrtEp`: the provider of one session.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Ep {
    pub(super) ort_version_supported: u32,
    pub(super) GetName: unsafe extern "system" fn(this: *const Self) -> *const c_char,
    pub(super) GetCapability: unsafe extern "system" fn(
        this: *mut Self,
        graph: *const OrtGraph,
        info: *mut GraphSupportInfo,
    ) -> OrtStatusPtr,
    pub(super) Compile: unsafe extern "system" fn(
        this: *mut Self,
        graphs: *const *const OrtGraph,
        fused_nodes: *const *const OrtNode,
        count: usize,
        infos: *mut *mut NodeComputeInfo,
        context_nodes: *mut *mut OrtNode,
    ) -> OrtStatusPtr,
    pub(super) ReleaseNodeComputeInfos:
        unsafe extern "system" fn(this: *mut Self, infos: *mut *mut NodeComputeInfo, count: usize),
    pub(super) GetPreferredDataLayout: Unused,
    pub(super) ShouldConvertDataLayoutForOp: Unused,
    pub(super) SetDynamicOptions: Unused,
    pub(super) OnRunStart: Unused,
    pub(super) OnRunEnd: Unused,
    pub(super) CreateAllocator: Unused,
    pub(super) CreateSyncStreamForDevice: Unused,
    pub(super) GetCompiledModelCompatibilityInfo: Unused,
    pub(super) GetKernelRegistry: Unused,
    pub(super) IsConcurrentRunSupported: Unused,
    pub(super) Sync: Unused,
    pub(super) CreateProfiler:
        unsafe extern "system" fn(this: *mut Self, out: *mut *mut EpProfiler) -> OrtStatusPtr,
}

/// `OrtNodeComputeInfo`: runs a compiled subgraph.
#[derive(Debug)]
#[repr(C)]
pub(super) struct NodeComputeInfo {
    pub(super) ort_version_supported: u32,
    pub(super) CreateState: unsafe extern "system" fn(
        this: *mut Self,
        context: *mut c_void,
        state: *mut *mut c_void,
    ) -> OrtStatusPtr,
    pub(super) Compute: unsafe extern "system" fn(
        this: *mut Self,
        state: *mut c_void,
        context: *mut OrtKernelContext,
    ) -> OrtStatusPtr,
    pub(super) ReleaseState: unsafe extern "system" fn(this: *mut Self, state: *mut c_void),
}

/// `OrtDataTransferImpl`: copies tensors between host and device.
#[derive(Debug)]
#[repr(C)]
pub(super) struct DataTransfer {
    pub(super) ort_version_supported: u32,
    pub(super) Release: unsafe extern "system" fn(this: *mut Self),
    pub(super) CanCopy: unsafe extern "system" fn(
        this: *const Self,
        from: *const MemoryDevice,
        to: *const MemoryDevice,
    ) -> bool,
    pub(super) CopyTensors: unsafe extern "system" fn(
        this: *mut Self,
        from: *const *const OrtValue,
        to: *const *mut OrtValue,
        streams: *const *mut OrtSyncStream,
        count: usize,
    ) -> OrtStatusPtr,
}
