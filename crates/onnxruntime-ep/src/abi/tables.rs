//! Tables of ONNX Runtime's provider API at version 23, of which `ort-sys` has only the names.
//!
//! The order and types of the fields are those of `onnxruntime_ep_c_api.h`. Later versions append fields, and
//! look at ours only as far as the version in the first field reaches.
#![expect(non_snake_case, reason = "the fields are called as in the C header")]

use std::ffi::{c_char, c_void};

use ort_sys::{
    OrtAllocator, OrtEpDevice, OrtGraph, OrtHardwareDevice, OrtKernelContext, OrtKeyValuePairs, OrtLogger,
    OrtMemoryInfo, OrtNode, OrtSessionOptions, OrtStatusPtr, OrtSyncStream, OrtValue,
};

/// The version of ONNX Runtime's API that the library is built for.
pub(super) const API_VERSION: u32 = 23;

/// A function that isn't called or not provided.
pub(super) type Unused = Option<unsafe extern "system" fn()>;

/// `OrtMemoryDevice`: where a tensor lies.
#[derive(Debug)]
#[repr(C)]
pub(super) struct MemoryDevice {
    _opaque: [u8; 0],
}

/// `OrtEpGraphSupportInfo`: collects the nodes that a provider takes.
#[derive(Debug)]
#[repr(C)]
pub(super) struct GraphSupportInfo {
    _opaque: [u8; 0],
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
