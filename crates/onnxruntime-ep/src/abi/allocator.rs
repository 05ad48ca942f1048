//! The allocator of device memory: addresses without memory behind them (see [`memory`](crate::memory)).

use std::ffi::c_void;
use std::ptr;

use ort_sys::{OrtAllocator, OrtAllocatorType, OrtDeviceMemoryType, OrtMemoryInfo, OrtMemoryInfoDeviceType};

use super::api::api;
use super::status::{check, guard_value};
use super::tables::API_VERSION;
use super::value::VENDOR_ID;
use crate::error::Result;
use crate::memory::MEMORY;

/// ONNX Runtime's table, and what it doesn't look at behind it.
#[repr(C)]
struct Allocator {
    table: OrtAllocator,
    info: *mut OrtMemoryInfo,
}

/// The description of the memory of device `index`, to be released by the caller.
pub(super) fn memory_info(index: u32) -> Result<*mut OrtMemoryInfo> {
    let api = api()?;
    let mut info = ptr::null_mut();
    // SAFETY: the name ends with 0. The alignment has to be 0: by any other, IO binding finds no allocator.
    let status = unsafe {
        (api.CreateMemoryInfo_V2)(
            c"WebGpuCompute".as_ptr(),
            OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_GPU,
            VENDOR_ID,
            i32::try_from(index).unwrap_or(i32::MAX),
            OrtDeviceMemoryType::OrtDeviceMemoryType_DEFAULT,
            0,
            OrtAllocatorType::OrtDeviceAllocator,
            &raw mut info,
        )
    };
    check("CreateMemoryInfo_V2", status)?;
    Ok(info)
}

/// An allocator for device `index`; `release` gives it back.
pub(super) fn create(index: u32) -> Result<*mut OrtAllocator> {
    let info = memory_info(index)?;
    // SAFETY: a table without functions is a value like any other.
    let mut table = unsafe { OrtAllocator::default() };
    table.version = API_VERSION;
    table.Alloc = Some(allocate);
    table.Free = Some(free);
    table.Info = Some(info_of);
    table.Reserve = Some(reserve);
    Ok(Box::into_raw(Box::new(Allocator { table, info })).cast())
}

/// # Safety
/// `allocator` must be one of `create`'s, and isn't used afterwards.
pub(super) unsafe fn release(allocator: *mut OrtAllocator) {
    // SAFETY: the caller's promise.
    let allocator = unsafe { Box::from_raw(allocator.cast::<Allocator>()) };
    if let Ok(api) = api() {
        // SAFETY: made by `memory_info`, and released once.
        unsafe { (api.ReleaseMemoryInfo)(allocator.info) };
    }
}

unsafe extern "system" fn allocate(_this: *mut OrtAllocator, bytes: usize) -> *mut c_void {
    address(bytes)
}

unsafe extern "system" fn reserve(_this: *const OrtAllocator, bytes: usize) -> *mut c_void {
    address(bytes)
}

/// Null if the address space is used up, as `malloc` has it.
fn address(bytes: usize) -> *mut c_void {
    let address = guard_value(0, || MEMORY.lock().allocate(bytes as u64));
    ptr::without_provenance_mut(address as usize)
}

unsafe extern "system" fn free(_this: *mut OrtAllocator, address: *mut c_void) {
    guard_value((), || {
        // Dropped without the lock: giving memory back may take the backend a while.
        let tensors = MEMORY.lock().free(address as u64);
        drop(tensors);
        Ok(())
    });
}

unsafe extern "system" fn info_of(this: *const OrtAllocator) -> *const OrtMemoryInfo {
    // SAFETY: ONNX Runtime passes the allocator back that `create` made.
    unsafe { (*this.cast::<Allocator>()).info }
}
