//! The factory: what ONNX Runtime asks when the library is registered.

use std::ffi::{CString, c_char};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use backend_api::OVERRIDE_VARIABLE;
use ort_sys::{
    OrtAllocator, OrtApiBase, OrtEpDevice, OrtHardwareDevice, OrtHardwareDeviceType, OrtKeyValuePairs,
    OrtLogger, OrtMemoryInfo, OrtSessionOptions, OrtStatusPtr,
};

use super::api::{self, api, ep_api, text};
use super::log::Logger;
use super::status::{check, guard, guard_value};
use super::tables::{API_VERSION, DataTransfer, Ep, EpFactory};
use super::value::VENDOR_ID;
use super::{allocator, provider, transfer};
use crate::devices::{self, Device};
use crate::error::{Error, Result};
use crate::options::{NAME, Options};

const EP_NAME: &std::ffi::CStr = c"WebGpuComputeExecutionProvider";
const VENDOR: &std::ffi::CStr = c"webgpu-compute";

/// Called when the library is registered.
///
/// # Safety
/// As `onnxruntime_ep_c_api.h` has it: `base` is ONNX Runtime's table, `factories` has room for `capacity`
/// pointers, `count` may be written.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn CreateEpFactories(
    _name: *const c_char,
    base: *const OrtApiBase,
    logger: *const OrtLogger,
    factories: *mut *mut EpFactory,
    capacity: usize,
    count: *mut usize,
) -> OrtStatusPtr {
    guard(|| {
        // SAFETY: the caller's promise. An ONNX Runtime that is too old is told that there is no factory.
        unsafe {
            count.write(0);
            if capacity > 0 && api::set(base) {
                LOGGER.store(logger.cast_mut(), Ordering::Relaxed);
                factories.write((&raw const FACTORY).cast_mut());
                count.write(1);
            }
        }
        Ok(())
    })
}

/// Called when the library is unregistered.
///
/// # Safety
/// Nothing is asked of the caller.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ReleaseEpFactory(_factory: *mut EpFactory) -> OrtStatusPtr {
    OrtStatusPtr(ptr::null_mut())
}

/// The factory, which nobody writes. It is never freed: ONNX Runtime calls it for what it gives back of sessions
/// that outlive the registration.
static FACTORY: EpFactory = EpFactory {
    ort_version_supported: API_VERSION,
    GetName: name,
    GetVendor: vendor,
    GetSupportedDevices: supported_devices,
    CreateEp: create_ep,
    ReleaseEp: release_ep,
    GetVendorId: vendor_id,
    GetVersion: version,
    ValidateCompiledModelCompatibilityInfo: None,
    CreateAllocator: create_allocator,
    ReleaseAllocator: release_allocator,
    CreateDataTransfer: create_data_transfer,
    IsStreamAware: is_stream_aware,
    CreateSyncStreamForDevice: None,
};

/// ONNX Runtime's logger outside of sessions, which it passes when the library is registered.
static LOGGER: AtomicPtr<OrtLogger> = AtomicPtr::new(ptr::null_mut());

unsafe extern "system" fn name(_this: *const EpFactory) -> *const c_char {
    EP_NAME.as_ptr()
}

unsafe extern "system" fn vendor(_this: *const EpFactory) -> *const c_char {
    VENDOR.as_ptr()
}

unsafe extern "system" fn vendor_id(_this: *const EpFactory) -> u32 {
    VENDOR_ID
}

unsafe extern "system" fn version(_this: *const EpFactory) -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The backend keeps the order of calls by itself.
unsafe extern "system" fn is_stream_aware(_this: *const EpFactory) -> bool {
    false
}

unsafe extern "system" fn supported_devices(
    this: *mut EpFactory,
    hardware: *const *const OrtHardwareDevice,
    hardware_count: usize,
    out: *mut *mut OrtEpDevice,
    capacity: usize,
    written: *mut usize,
) -> OrtStatusPtr {
    guard(|| {
        // SAFETY: `written` may be written.
        unsafe { written.write(0) };
        // SAFETY: the list is as long as the count says.
        let hardware = (0..hardware_count).map(|i| unsafe { *hardware.add(i) }).collect::<Vec<_>>();
        let Some(hardware) = hardware_of_gpus(&hardware)? else { return Ok(()) };
        let devices = devices::all()?;
        if devices.is_empty() {
            // SAFETY: the registration that this is a part of passed the logger.
            unsafe { Logger::new(LOGGER.load(Ordering::Relaxed)) }.warning(&format!(
                "{NAME} has no device: there is no GPU here. {OVERRIDE_VARIABLE}=cpu or =webgpu:0, set before \
                 the library is registered, computes on the CPU or on a software adapter"
            ));
        }
        for (i, device) in devices.iter().take(capacity).enumerate() {
            // SAFETY: `out` has room for `capacity` devices; the factory and the hardware are valid.
            unsafe {
                out.add(i).write(offer(this, hardware, device)?);
                written.write(i + 1);
            }
        }
        Ok(())
    })
}

/// What `ort-sys` declares the function to be that tells a hardware device's kind.
type HardwareKind = unsafe extern "system" fn(*const OrtHardwareDevice) -> OrtHardwareDeviceType;

/// [`HardwareKind`] with the enumeration's number as its result.
type HardwareCode = unsafe extern "system" fn(*const OrtHardwareDevice) -> i32;

/// The hardware device that stands for every adapter. ONNX Runtime's list and the adapters' have no id in
/// common, and in a container it may have no GPU at all.
fn hardware_of_gpus(hardware: &[*const OrtHardwareDevice]) -> Result<Option<*const OrtHardwareDevice>> {
    let api = api()?;
    // As a number: a newer ONNX Runtime may have kinds that the enumeration of `ort-sys` lacks.
    // SAFETY: the enumeration is represented by an i32.
    let kind = unsafe { std::mem::transmute::<HardwareKind, HardwareCode>(api.HardwareDevice_Type) };
    let gpu = OrtHardwareDeviceType::OrtHardwareDeviceType_GPU as i32;
    // SAFETY: ONNX Runtime's devices live as long as its environment.
    let is_gpu = |&&device: &&*const OrtHardwareDevice| unsafe { kind(device) == gpu };
    Ok(hardware.iter().find(is_gpu).or(hardware.first()).copied())
}

/// # Safety
/// The factory and the hardware must be valid.
unsafe fn offer(
    factory: *mut EpFactory,
    hardware: *const OrtHardwareDevice,
    device: &Device,
) -> Result<*mut OrtEpDevice> {
    let (api, ep_api) = (api()?, ep_api()?);
    let info = &device.info;
    let metadata = [
        (c"selector", &info.selector),
        (c"name", &info.name),
        (c"api", &info.api),
        (c"driver", &info.driver),
        (c"kind", &format!("{:?}", info.kind)),
    ];
    let mut pairs = ptr::null_mut();
    let mut offered = ptr::null_mut();
    // SAFETY: texts end with 0 and are copied, as the pairs are; what is made here is released here, but for
    // the device, which is ONNX Runtime's.
    unsafe {
        (api.CreateKeyValuePairs)(&raw mut pairs);
        for (key, value) in metadata {
            if let Ok(value) = CString::new(value.as_str()) {
                (api.AddKeyValuePair)(pairs, key.as_ptr(), value.as_ptr());
            }
        }
        let status = (ep_api.CreateEpDevice)(factory, hardware, pairs, ptr::null(), &raw mut offered);
        (api.ReleaseKeyValuePairs)(pairs);
        check("CreateEpDevice", status)?;
        // ONNX Runtime keeps the description.
        let memory = allocator::memory_info(device.index)?;
        check("EpDevice_AddAllocatorInfo", (ep_api.EpDevice_AddAllocatorInfo)(offered, memory))?;
    }
    Ok(offered)
}

unsafe extern "system" fn create_ep(
    _this: *mut EpFactory,
    _devices: *const *const OrtHardwareDevice,
    metadata: *const *const OrtKeyValuePairs,
    count: usize,
    options: *const OrtSessionOptions,
    logger: *const OrtLogger,
    out: *mut *mut Ep,
) -> OrtStatusPtr {
    guard(|| {
        if count == 0 {
            return Err(Error::invalid(format!("{NAME} needs a device")));
        }
        // SAFETY: the lists are as long as the count says; the logger outlives the provider.
        let (metadata, logger) = unsafe { (*metadata, Logger::new(logger)) };
        // SAFETY: pairs and options are valid for the call.
        let (selector, options) = unsafe { (value_of(metadata, c"selector")?, session_options(options)?) };
        let listed = devices::all()?;
        let chosen = listed.iter().find(|device| device.info.selector == selector).or(listed.first());
        let chosen = chosen.ok_or_else(|| Error::invalid("there is no device"))?;
        let device = match &options.selector {
            Some(selector) => devices::named(selector, chosen)?,
            None => Arc::clone(chosen),
        };
        let ep = provider::create(&device, options, logger)?;
        // SAFETY: `out` may be written.
        unsafe { out.write(ep) };
        Ok(())
    })
}

unsafe extern "system" fn release_ep(_this: *mut EpFactory, ep: *mut Ep) {
    guard_value((), || {
        // SAFETY: ONNX Runtime gives back what `create_ep` made.
        unsafe { provider::release(ep) };
        Ok(())
    });
}

/// # Safety
/// The pairs must be null or valid.
unsafe fn value_of(pairs: *const OrtKeyValuePairs, key: &std::ffi::CStr) -> Result<String> {
    let api = api()?;
    if pairs.is_null() {
        return Ok(String::new());
    }
    // SAFETY: the caller's promise; a value that isn't there is null.
    Ok(unsafe { text((api.GetKeyValue)(pairs, key.as_ptr())) })
}

/// The provider's options, which ONNX Runtime keeps as entries `ep.<name in lower case>.<key>` of the
/// session's configuration.
///
/// # Safety
/// The options must be null or valid.
unsafe fn session_options(options: *const OrtSessionOptions) -> Result<Options> {
    let api = api()?;
    let mut parsed = Options::default();
    if options.is_null() {
        return Ok(parsed);
    }
    let (mut entries, mut keys, mut values, mut count) = (ptr::null_mut(), ptr::null(), ptr::null(), 0);
    // SAFETY: the caller's promise; keys and values are lists of `count` texts that live as long as the
    // entries, which are released at the end.
    unsafe {
        check(
            "GetSessionOptionsConfigEntries",
            (api.GetSessionOptionsConfigEntries)(options, &raw mut entries),
        )?;
        (api.GetKeyValuePairs)(entries, &raw mut keys, &raw mut values, &raw mut count);
        let mut result = Ok(());
        for i in 0..count {
            result = result.and_then(|()| parsed.set(&text(*keys.add(i)), &text(*values.add(i))));
        }
        (api.ReleaseKeyValuePairs)(entries);
        result?;
    }
    Ok(parsed)
}

unsafe extern "system" fn create_allocator(
    _this: *mut EpFactory,
    info: *const OrtMemoryInfo,
    _options: *const OrtKeyValuePairs,
    out: *mut *mut OrtAllocator,
) -> OrtStatusPtr {
    guard(|| {
        let api = api()?;
        let mut id = 0;
        // SAFETY: the description is valid, and `out` may be written.
        unsafe {
            check("MemoryInfoGetId", (api.MemoryInfoGetId)(info, &raw mut id))?;
            out.write(allocator::create(u32::try_from(id).unwrap_or(0))?);
        }
        Ok(())
    })
}

unsafe extern "system" fn release_allocator(_this: *mut EpFactory, allocator: *mut OrtAllocator) {
    guard_value((), || {
        // SAFETY: ONNX Runtime gives back what `create_allocator` made.
        unsafe { allocator::release(allocator) };
        Ok(())
    });
}

unsafe extern "system" fn create_data_transfer(
    _this: *mut EpFactory,
    out: *mut *mut DataTransfer,
) -> OrtStatusPtr {
    guard(|| {
        // SAFETY: `out` may be written.
        unsafe { out.write(transfer::create()) };
        Ok(())
    })
}
