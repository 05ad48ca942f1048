//! What a binding shows of a buffer.

use std::sync::Arc;

use backend_api::{BackendError, BackendResult, DType};

use crate::memory::{Block, DeviceSlice};

/// The part of a buffer that a kernel sees, and where in it the operand starts.
///
/// Kernels take element offsets, so a whole buffer is bound where the device allows it: views of one buffer
/// then share their bind group, and an offset needs no alignment.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) block: Arc<Block>,
    /// First byte bound.
    pub(crate) start: u64,
    /// Bytes bound.
    pub(crate) size: u64,
    /// Elements from there to the operand.
    pub(crate) offset: u32,
    /// The operand's bytes in what is bound.
    #[cfg(feature = "count-out-of-bounds")]
    pub(crate) operand: std::ops::Range<u64>,
}

/// The limits that windows obey.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BindingLimits {
    pub(crate) max_bytes: u64,
    pub(crate) alignment: u64,
}

impl BindingLimits {
    pub(crate) fn of(limits: &wgpu::Limits) -> Self {
        Self {
            // Indices are u32, and a window of 2 GiB has 2³⁰ elements of the smallest type.
            max_bytes: limits.max_storage_buffer_binding_size.min(1 << 31),
            alignment: u64::from(limits.min_storage_buffer_offset_alignment),
        }
    }
}

impl Window {
    /// The window of a slice of `dtype` elements.
    ///
    /// # Errors
    /// [`Limit`](BackendError::Limit) if the slice is larger than what can be bound.
    pub(crate) fn new(
        op: &'static str,
        slice: &DeviceSlice,
        dtype: DType,
        limits: BindingLimits,
    ) -> BackendResult<Self> {
        let block = Arc::clone(&slice.block);
        let whole = block.size() as u64;
        let offset = slice.offset as u64;
        if whole <= limits.max_bytes {
            return Ok(Self {
                #[cfg(feature = "count-out-of-bounds")]
                operand: offset..offset + slice.len as u64,
                block,
                start: 0,
                size: whole,
                offset: elements(offset, dtype),
            });
        }
        let start = offset / limits.alignment * limits.alignment;
        let size = (offset - start + slice.len as u64).next_multiple_of(4).min(whole - start);
        if size > limits.max_bytes {
            return Err(BackendError::Limit {
                op,
                what: "bytes of an operand",
                requested: slice.len,
                max: usize::try_from(limits.max_bytes).unwrap_or(usize::MAX),
            });
        }
        Ok(Self {
            #[cfg(feature = "count-out-of-bounds")]
            operand: offset - start..offset - start + slice.len as u64,
            block,
            start,
            size,
            offset: elements(offset - start, dtype),
        })
    }

    /// The window of the part of the operand that starts `elements` later, inside of it.
    pub(crate) fn advanced(&self, elements: usize) -> Self {
        // Elements of an operand have numbers of 32 bits, or there would be no window of it.
        let offset = self.offset.saturating_add(u32::try_from(elements).unwrap_or(u32::MAX));
        Self { offset, ..self.clone() }
    }

    /// The window for a kernel that reads vectors of 16 bytes, of whose first and last one only a part may be the
    /// operand's; the buffer has the rest. Where accesses are counted, that rest counts as the operand's.
    #[cfg(feature = "count-out-of-bounds")]
    pub(crate) fn by_vectors(mut self) -> Self {
        let std::ops::Range { start, end } = self.operand;
        self.operand = start / 16 * 16..end.next_multiple_of(16).min(self.size);
        self
    }

    /// The window for a kernel that reads vectors, whose accesses aren't counted.
    #[cfg(not(feature = "count-out-of-bounds"))]
    pub(crate) fn by_vectors(self) -> Self {
        self
    }

    /// Whether both are in one buffer, which can't be read and written in one dispatch.
    pub(crate) fn shares_buffer(&self, other: &Self) -> bool {
        self.block.id() == other.block.id()
    }
}

/// A byte offset within a window as a number of elements; alignment has been checked with the operands.
fn elements(bytes: u64, dtype: DType) -> u32 {
    (bytes / dtype.size() as u64) as u32
}
