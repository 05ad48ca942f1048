//! What a binding shows of a buffer.

use std::sync::Arc;

use backend_api::{BackendError, BackendResult, DType};

use crate::memory::{Block, DeviceSlice};

/// The part of a buffer that a kernel sees, and where in it the operand starts.
///
/// Kernels take element offsets, so a whole buffer is bound where the device allows it: views of one buffer
/// then share their bind group, and an offset needs no alignment.
///
/// The window of an operand that is larger than what can be bound is [wide](Self::is_wide): nothing launches with it, but
/// with windows of its parts, which are [advanced](Self::advanced) and [truncated](Self::truncated).
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) block: Arc<Block>,
    /// First byte bound.
    pub(crate) start: u64,
    /// Bytes bound.
    pub(crate) size: u64,
    /// Elements from there to the operand.
    pub(crate) offset: u32,
    /// Bytes of an element.
    pub(crate) item: u8,
    /// The most bytes that can be bound.
    pub(crate) max: u32,
    /// The operand's bytes in what is bound.
    #[cfg(feature = "count-out-of-bounds")]
    pub(crate) operand: std::ops::Range<u64>,
}

/// Bytes of the vectors that kernels read.
pub(crate) const VECTOR_BYTES: u64 = 16;

/// A multiple of the offset alignment of every device: WebGPU's `minStorageBufferOffsetAlignment` is a power of two
/// of at most 256.
pub(crate) const PART_ALIGNMENT: u64 = 256;

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
    /// The window of a slice of `dtype` elements, a wide one if the slice is larger than what can be bound.
    pub(crate) fn new(slice: &DeviceSlice, dtype: DType, limits: BindingLimits) -> Self {
        let item = dtype.size() as u8;
        let max = u32::try_from(limits.max_bytes).unwrap_or(u32::MAX);
        let block = Arc::clone(&slice.block);
        let whole = block.size() as u64;
        let offset = slice.offset as u64;
        if whole <= limits.max_bytes {
            return Self {
                #[cfg(feature = "count-out-of-bounds")]
                operand: offset..offset + slice.len as u64,
                block,
                start: 0,
                size: whole,
                offset: elements(offset, dtype),
                item,
                max,
            };
        }
        let start = offset / limits.alignment * limits.alignment;
        let size = (offset - start + slice.len as u64).next_multiple_of(VECTOR_BYTES).min(whole - start);
        Self {
            #[cfg(feature = "count-out-of-bounds")]
            operand: offset - start..offset - start + slice.len as u64,
            block,
            start,
            size,
            offset: elements(offset - start, dtype),
            item,
            max,
        }
    }

    /// Whether the operand is larger than what can be bound.
    pub(crate) fn is_wide(&self) -> bool {
        self.size > u64::from(self.max)
    }

    /// The bytes by which a launch that accesses the operand's first `elements` elements passes what can be bound.
    pub(crate) fn excess(&self, elements: usize) -> u64 {
        if self.is_wide() { self.bytes_of(elements).saturating_sub(u64::from(self.max)) } else { 0 }
    }

    /// How many items of so many elements can be bound at once, wherever the first one begins.
    pub(crate) fn most_items(&self, elements: usize) -> usize {
        let item = (elements * usize::from(self.item)).max(1);
        let room = u64::from(self.max).saturating_sub(PART_ALIGNMENT + VECTOR_BYTES);
        if self.is_wide() { usize::try_from(room).unwrap_or(usize::MAX) / item } else { usize::MAX }
    }

    /// The window of the operand's first `elements` elements.
    pub(crate) fn truncated(&self, elements: usize) -> Self {
        let mut window = self.clone();
        if self.is_wide() {
            window.size = self.bytes_of(elements);
            #[cfg(feature = "count-out-of-bounds")]
            {
                window.operand.end = window.operand.start + (elements * usize::from(self.item)) as u64;
            }
        }
        window
    }

    /// The bytes to bind for `elements` elements: whole vectors, as some kernels read these, while there are any.
    fn bytes_of(&self, elements: usize) -> u64 {
        let end = (u64::from(self.offset) + elements as u64).saturating_mul(u64::from(self.item));
        end.div_ceil(VECTOR_BYTES).max(1).saturating_mul(VECTOR_BYTES).min(self.size)
    }

    /// # Errors
    /// [`Limit`](BackendError::Limit) for a wide window.
    pub(crate) fn require_bindable(&self, op: &'static str) -> BackendResult<()> {
        if !self.is_wide() {
            return Ok(());
        }
        // A buffer's size fits in `usize`, and so does the most that can be bound of it.
        let [requested, max] = [self.size as usize, self.max as usize];
        Err(BackendError::Limit { op, what: "bytes of an operand", requested, max })
    }

    /// The window of the part of the operand that starts `elements` later, inside of it.
    pub(crate) fn advanced(&self, elements: usize) -> Self {
        if self.is_wide() {
            return self.moved(elements);
        }
        // Elements of an operand have numbers of 32 bits, or there would be no window of it.
        let offset = self.offset.saturating_add(u32::try_from(elements).unwrap_or(u32::MAX));
        Self { offset, ..self.clone() }
    }

    /// The window that begins less than [`PART_ALIGNMENT`] bytes before the operand.
    pub(crate) fn near(&self) -> Self {
        self.moved(0)
    }

    /// What [`advanced`](Self::advanced) gives of a wide window: it begins later, so that offsets stay small.
    fn moved(&self, elements: usize) -> Self {
        let item = u64::from(self.item);
        let skip = (u64::from(self.offset) + elements as u64).saturating_mul(item);
        // At a multiple of the alignment in the buffer, as `Run` takes it to be.
        let first = (self.start + skip) / PART_ALIGNMENT * PART_ALIGNMENT;
        let unbound = first.saturating_sub(self.start).min(self.size);
        let start = skip.saturating_sub(unbound);
        Self {
            #[cfg(feature = "count-out-of-bounds")]
            operand: start..(self.operand.end - unbound).max(start),
            block: Arc::clone(&self.block),
            start: self.start + unbound,
            size: self.size - unbound,
            offset: u32::try_from(start / item.max(1)).unwrap_or(u32::MAX),
            ..*self
        }
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
