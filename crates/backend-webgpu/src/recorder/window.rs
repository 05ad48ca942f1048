//! What a binding shows of a buffer.

use std::ops::Range;
use std::sync::Arc;

use backend_api::{BackendError, BackendResult, DType};

use crate::memory::{self, Block, DeviceSlice, Piece, are_cut};

/// The part of a buffer that a kernel sees, and where in it the operand starts.
///
/// Kernels take element offsets, so a whole buffer is bound where the device allows it: views of one buffer
/// then share their bind group, and an offset needs no alignment.
///
/// The window of an operand that is larger than what can be bound, or lies in several buffers, is [wide](Self::is_wide):
/// work is divided into launches with windows of its parts, which are [advanced](Self::advanced) and
/// [truncated](Self::truncated). Of those, one that begins in a buffer and ends in the next is bound as a copy.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) block: Arc<Block>,
    /// The bytes bound.
    pub(crate) bound: Range<u64>,
    /// Elements from there to the operand.
    pub(crate) offset: u32,
    /// Bytes of an element.
    pub(crate) item: u8,
    /// The most bytes that can be bound.
    pub(crate) max: u32,
    /// The operand's bytes in what is bound.
    #[cfg(feature = "count-out-of-bounds")]
    pub(crate) operand: Range<u64>,
}

/// Bytes of the vectors that kernels read.
pub(crate) const VECTOR_BYTES: u64 = memory::VECTOR_BYTES as u64;

/// A multiple of the offset alignment of every device: WebGPU's `minStorageBufferOffsetAlignment` is a power of two
/// of at most 256.
pub(crate) const PART_ALIGNMENT: u64 = 256;

/// What passes the limit where it isn't known which operand it is, or where it is memory of the operation's own.
pub(crate) const UNNAMED: &str = "bytes of an operand";

/// What is added to the excess of bytes that can't be bound, so that it is told from, and comes before, that of bytes
/// which would have to be copied. Buffers are smaller by far.
pub(crate) const UNBINDABLE: u64 = 1 << 48;

/// The most bytes in several buffers for which a copy is as good as dividing the work: those that a binding has four
/// times, and what a GPU copies in the time of a few launches.
const fn most_copied(max: u64) -> u64 {
    let quarter = max / 4;
    if quarter < 16 << 20 { quarter } else { 16 << 20 }
}

/// By how many bytes a launch with `bytes` bytes of an operand from byte `start` of its block on passes what should be
/// bound, of which `max` can be, and buffers but the last one have `part_len`, if there are several.
pub(crate) fn excess(max: u64, part_len: Option<usize>, start: u64, bytes: u64) -> u64 {
    if bytes > max {
        return UNBINDABLE + (bytes - max);
    }
    // Within a block, whose bytes are counted in `usize`.
    let is_cut = part_len.is_some_and(|len| are_cut(len, start as usize, bytes as usize));
    if is_cut { bytes.saturating_sub(most_copied(max)) } else { 0 }
}

/// [`Window::cut`] of items of `item` bytes each from byte `start` of a block on.
pub(crate) fn cut(
    max: u64,
    part_len: Option<usize>,
    start: usize,
    item: usize,
    count: usize,
) -> Option<usize> {
    let room = part_len.map(|len| len - start % len)?;
    let copied = usize::try_from(most_copied(max)).unwrap_or(usize::MAX);
    let bytes = item.saturating_mul(count);
    // No bytes, if items have none.
    if bytes <= room || bytes <= copied {
        return None;
    }
    // As aligned as halves are, if that leaves little to copy.
    let step = [256, 64, 16, 4].into_iter().find(|step| step * item <= copied).unwrap_or(1);
    let at = (room / item / step * step).max(step);
    (at < count).then_some(at)
}

/// The limits that windows obey.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BindingLimits {
    pub(crate) max_bytes: u64,
    pub(crate) alignment: u64,
}

impl BindingLimits {
    pub(crate) fn of(limits: &wgpu::Limits) -> Self {
        // Indices are u32, and a window of 2 GiB has 2³⁰ elements of the smallest type.
        let max_bytes = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size).min(1 << 31);
        Self {
            // Whole vectors are bound.
            max_bytes: max_bytes / VECTOR_BYTES * VECTOR_BYTES,
            alignment: u64::from(limits.min_storage_buffer_offset_alignment),
        }
    }
}

impl Window {
    /// Whether it begins with the element that another window of elements of its type begins with.
    pub(crate) fn is_at(&self, other: &Self) -> bool {
        self.block.id() == other.block.id()
            && (self.bound.start, self.offset) == (other.bound.start, other.offset)
    }

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
                bound: 0..whole,
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
            bound: start..start + size,
            offset: elements(offset - start, dtype),
            item,
            max,
        }
    }

    /// The window of an operand that is just what is bound, in elements of `item` bytes.
    pub(crate) fn of_bound(block: &Arc<Block>, bound: Range<u64>, item: u8, max: u32) -> Self {
        Self {
            #[cfg(feature = "count-out-of-bounds")]
            operand: 0..bound.end - bound.start,
            block: Arc::clone(block),
            bound,
            offset: 0,
            item,
            max,
        }
    }

    /// The window of words of one buffer.
    pub(crate) fn of_words(piece: Piece<'_>) -> Self {
        let start = piece.offset as u64;
        Self::of_bound(piece.block, start..start + piece.len as u64, 4, u32::MAX)
    }

    /// The window where what it shows begins at `start` of another block.
    pub(crate) fn placed(&self, block: &Arc<Block>, start: u64) -> Self {
        Self { block: Arc::clone(block), bound: start..start + self.size(), ..self.clone() }
    }

    /// Number of bytes bound.
    pub(crate) const fn size(&self) -> u64 {
        self.bound.end - self.bound.start
    }

    /// Whether the operand is larger than what can be bound, or lies in several buffers.
    pub(crate) fn is_wide(&self) -> bool {
        // A window shows bytes of a block, which are counted in `usize`.
        self.size() > u64::from(self.max)
            || self.block.is_cut_within(self.bound.start as usize, self.size() as usize)
    }

    /// The bytes by which a launch that accesses the operand's first `elements` elements passes what can be bound, or
    /// what is better divided than copied; from [`UNBINDABLE`] on, if it can't be launched.
    pub(crate) fn excess(&self, elements: usize) -> u64 {
        if !self.is_wide() {
            return 0;
        }
        excess(u64::from(self.max), self.block.part_len(), self.bound.start, self.bytes_of(elements))
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
            window.bound.end = window.bound.start + self.bytes_of(elements);
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
        end.div_ceil(VECTOR_BYTES).max(1).saturating_mul(VECTOR_BYTES).min(self.size())
    }

    /// Where `count` items of the operand, `stride` elements apart, are best divided as a buffer ends among them: the items
    /// before and behind are bound there, and the few between aren't many to copy. `None` if no buffer ends there.
    pub(crate) fn cut(&self, stride: usize, count: usize) -> Option<usize> {
        let item = stride.saturating_mul(usize::from(self.item));
        // Within a block, whose bytes are counted in `usize`.
        let start = self.bound.start as usize + self.offset as usize * usize::from(self.item);
        cut(u64::from(self.max), self.block.part_len(), start, item, count)
    }

    /// Whether a kernel can bind all that it shows.
    pub(crate) fn is_bindable(&self) -> bool {
        self.size() <= u64::from(self.max)
    }

    /// # Errors
    /// [`Limit`](BackendError::Limit) for a window that shows more than what can be bound.
    pub(crate) fn require_bindable(&self, op: &'static str) -> BackendResult<()> {
        if self.is_bindable() {
            return Ok(());
        }
        // A buffer's size fits in `usize`, and so does the most that can be bound of it.
        let [requested, max] = [self.size() as usize, self.max as usize];
        Err(BackendError::Limit { op, what: UNNAMED, requested, max })
    }

    /// Whether what it shows begins in a slice of its block.
    pub(crate) fn begins_in(&self, slice: &DeviceSlice) -> bool {
        let byte = self.bound.start as usize + self.offset as usize * usize::from(self.item);
        (slice.offset..slice.offset + slice.len).contains(&byte)
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
        let first = (self.bound.start + skip) / PART_ALIGNMENT * PART_ALIGNMENT;
        let unbound = first.saturating_sub(self.bound.start).min(self.size());
        let start = skip.saturating_sub(unbound);
        Self {
            #[cfg(feature = "count-out-of-bounds")]
            operand: start..(self.operand.end - unbound).max(start),
            block: Arc::clone(&self.block),
            bound: self.bound.start + unbound..self.bound.end,
            offset: u32::try_from(start / item.max(1)).unwrap_or(u32::MAX),
            ..*self
        }
    }

    /// The window for a kernel that reads vectors of 16 bytes, of whose first and last one only a part may be the
    /// operand's; the buffer has the rest. Where accesses are counted, that rest counts as the operand's.
    #[cfg(feature = "count-out-of-bounds")]
    pub(crate) fn by_vectors(mut self) -> Self {
        let Range { start, end } = self.operand;
        self.operand = start / 16 * 16..end.next_multiple_of(16).min(self.size());
        self
    }

    /// The window for a kernel that reads vectors, whose accesses aren't counted.
    #[cfg(not(feature = "count-out-of-bounds"))]
    pub(crate) fn by_vectors(self) -> Self {
        self
    }

    /// First byte and bytes bound, if these aren't all of a buffer.
    #[cfg(test)]
    pub(crate) fn part(&self) -> Option<[u64; 2]> {
        (self.size() < self.block.size() as u64).then_some([self.bound.start, self.size()])
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WebGpuBackend;

    const LIMITS: BindingLimits = BindingLimits { max_bytes: 1024, alignment: 256 };

    fn block(bytes: u64) -> Arc<Block> {
        let backend = WebGpuBackend::open().expect("a WebGPU adapter");
        Block::of_test(backend.device().unwrap(), bytes)
    }

    /// The window of `len` bytes of a block from `offset` on, of f32.
    fn window(block: &Arc<Block>, offset: usize, len: usize) -> Window {
        let slice = DeviceSlice { block: Arc::clone(block), offset, len };
        Window::new(&slice, DType::F32, LIMITS)
    }

    /// First byte and bytes bound, and the element at which the operand begins.
    fn bound(window: &Window) -> (u64, u64, u32) {
        (window.bound.start, window.size(), window.offset)
    }

    #[test]
    fn a_buffer_that_can_be_bound_is_bound_whole() {
        let block = block(1024);
        let window = window(&block, 300, 100);
        assert_eq!(bound(&window), (0, 1024, 75));
        assert_eq!(bound(&window.advanced(10)), (0, 1024, 85));
        assert_eq!(bound(&window.truncated(3)), (0, 1024, 75));
        assert!(!window.is_wide() && window.require_bindable("test").is_ok());
        assert_eq!((window.excess(1 << 20), window.most_items(10)), (0, usize::MAX));
    }

    #[test]
    fn of_a_larger_buffer_whole_vectors_around_the_operand_are_bound() {
        let block = block(4088);
        assert_eq!(bound(&window(&block, 1300, 700)), (1280, 720, 5));
        assert_eq!(bound(&window(&block, 1280, 16)), (1280, 16, 0));
        assert_eq!(bound(&window(&block, 1280, 20)), (1280, 32, 0));
        // A vector may pass the buffer's end.
        assert_eq!(bound(&window(&block, 4000, 88)), (3840, 248, 40));
    }

    #[test]
    fn parts_of_an_operand_that_is_too_large_begin_and_end_near_their_elements() {
        let block = block(4096);
        let whole = window(&block, 1300, 2000);
        assert!(whole.is_wide());
        assert_eq!(bound(&whole), (1280, 2032, 5));
        let error = whole.require_bindable("test").unwrap_err();
        assert!(matches!(error, BackendError::Limit { requested: 2032, max: 1024, .. }), "{error:?}");
        // Elements 5 to 105 of what is bound.
        assert_eq!(bound(&whole.truncated(100)), (1280, 432, 5));
        assert_eq!(bound(&whole.truncated(0)), (1280, 32, 5));
        assert_eq!(bound(&whole.truncated(1 << 20)), (1280, 2032, 5));
        assert_eq!(
            [100, 251, 252, 500].map(|elements| whole.excess(elements)),
            [0, 0, UNBINDABLE + 16, UNBINDABLE + 1008]
        );
        // Byte 420 of what was bound is byte 164 behind a multiple of the alignment.
        let later = whole.advanced(100);
        assert_eq!(bound(&later), (1536, 2032 - 256, 41));
        assert_eq!(bound(&later.near()), bound(&later));
        assert_eq!(bound(&whole.advanced(59)), (1536, 2032 - 256, 0));
        assert_eq!(bound(&whole.advanced(58)), (1280, 2032, 63));
        // Wherever the first of 18 items begins, they can be bound.
        assert_eq!([10, 0].map(|elements| whole.most_items(elements)), [18, 752]);
    }

    #[test]
    fn a_window_is_placed_in_another_block() {
        let [first, second] = [block(1024), block(2048)];
        let window = window(&first, 300, 100);
        let placed = window.placed(&second, 512);
        assert_eq!(bound(&placed), (512, 1024, 75));
        assert!(window.shares_buffer(&window.advanced(1)) && !window.shares_buffer(&placed));
        let words = Window::of_words(second.piece(256, 64));
        assert_eq!((bound(&words), words.shares_buffer(&placed)), ((256, 64, 0), true));
    }

    #[test]
    fn bytes_that_cannot_be_bound_come_before_those_that_are_copied() {
        const MIB: u64 = 1 << 20;
        let of = |bytes| excess(128 * MIB, Some(256 << 20), 256 * MIB - 4, bytes);
        assert_eq!(of(128 * MIB + 1), UNBINDABLE + 1);
        // Sixteen MiB are copied as fast as they are divided.
        assert_eq!([4, 8, 16 * MIB, 16 * MIB + 8, 128 * MIB].map(of), [0, 0, 0, 8, 112 * MIB]);
        assert_eq!(excess(128 * MIB, None, 256 * MIB - 4, 128 * MIB), 0, "one buffer");
        assert_eq!(excess(1 << 16, Some(1 << 18), (1 << 18) - 4, (1 << 14) + 4), 4, "a quarter of a binding");
    }

    #[test]
    fn items_are_cut_before_the_end_of_a_buffer() {
        let of = |start, item, count| cut(1 << 16, Some(1 << 18), start, item, count);
        assert_eq!(of(0, 1000, 600), Some(256), "of 262 at a multiple of 256, as 256 items are few to copy");
        assert_eq!(cut(1 << 16, None, 0, 1000, 600), None, "one buffer");
        assert_eq!([of(0, 0, 600), of(0, 1024, 256), of(1 << 18, 1024, 256)], [None; 3], "nothing to cut");
        assert_eq!(of(0, 1000, 262), None, "all before the end, the last ones behind a step");
        assert_eq!(of((1 << 18) - 1024, 1024, 16), None, "few to copy");
        // Sixteen of 1000 bytes are few to copy, and 17 aren't.
        assert_eq!([17, 18].map(|count| of((1 << 18) - 16_500, 1000, count)), [Some(16); 2]);
        assert_eq!(of((1 << 18) - 3000, 1000, 20), Some(16), "at least a step");
        assert_eq!(of((1 << 18) - 30_000, 20_000, 4), Some(1));
        assert_eq!(of((1 << 18) - 70_000, 20_000, 4), Some(3));
        assert_eq!(of(0, 1 << 20, 1), None, "a single item");
    }

    #[test]
    fn a_binding_is_no_larger_than_indices_reach() {
        let of = |max_storage_buffer_binding_size, max_buffer_size| {
            let limits =
                wgpu::Limits { max_storage_buffer_binding_size, max_buffer_size, ..wgpu::Limits::default() };
            BindingLimits::of(&limits).max_bytes
        };
        assert_eq!([of(112, 200), of(200, 112), of(1 << 40, 1 << 40)], [112, 112, 1 << 31]);
        assert_eq!([of(127, 200), of((1 << 31) - 1, 1 << 40)], [112, (1 << 31) - 16], "whole vectors");
    }

    #[test]
    fn an_operand_is_cut_where_its_block_has_another_buffer() {
        let [first, second] = [block(4096), block(4096)];
        let divided = Block::divided(first, vec![second], 4096);
        let window = window(&divided, 1300, 6000);
        // Of items of 100 bytes, 27 lie in the first buffer.
        assert_eq!(window.cut(25, 60), Some(27));
        assert_eq!((window.cut(25, 27), window.cut(0, 60)), (None, None));
        // Large enough to be bound, but for the end of a buffer in it.
        let across = Window { max: 1 << 20, ..window.clone() };
        assert!(across.is_wide() && across.require_bindable("test").is_ok());
        let before = Window::of_words(divided.piece(0, 4096));
        assert!(!before.is_wide());
    }
}
