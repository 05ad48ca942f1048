//! The bytes that a call reads and writes.
//!
//! A descriptor's `operands` method checks shapes and says, for each handle, how many bytes from its start
//! the operation touches and how. [`check`] then compares that with the memory behind the handles. Both
//! backends call it, so a bad call gets the same error everywhere, before anything has happened.

use crate::kv::KvFormat;
use crate::{BackendError, BackendResult, DType};

/// How an operation touches an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only read.
    Read,
    /// Only read, and the output may be exactly this operand.
    ReadInPlace,
    /// Written, perhaps read as well.
    Write,
}

/// One handle of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// The argument's name.
    pub arg: &'static str,
    /// The handle. Not looked at when `bytes` is 0.
    pub ptr: u64,
    /// Bytes from the handle's start to the first element.
    pub offset: usize,
    /// Bytes from there to the end of the last element touched.
    pub bytes: usize,
    /// Alignment of the elements, in bytes.
    pub align: usize,
    /// How it is touched.
    pub access: Access,
}

impl Operand {
    /// An operand of `elements` elements of `dtype`.
    pub fn new(
        op: &'static str,
        arg: &'static str,
        ptr: u64,
        dtype: DType,
        elements: usize,
        access: Access,
    ) -> BackendResult<Self> {
        let bytes = crate::checked_product(op, arg, &[elements, dtype.size()])?;
        Ok(Self { arg, ptr, offset: 0, bytes, align: dtype.size(), access })
    }

    /// Keys or values of a format: `reach` elements from element `offset` on, or as many more as make whole blocks.
    /// Where nothing is touched, the offset may be any number.
    pub(crate) fn kv(
        op: &'static str,
        arg: &'static str,
        (ptr, format): (u64, KvFormat),
        offset: usize,
        reach: usize,
        access: Access,
    ) -> BackendResult<Self> {
        let Some(dtype) = format.dtype() else {
            let blocks = |elements: usize| {
                crate::checked_product(op, arg, &[elements.div_ceil(KvFormat::BLOCK), KvFormat::BLOCK_BYTES])
            };
            let bytes = blocks(reach)?;
            let offset = if bytes == 0 { 0 } else { blocks(offset)? };
            crate::checked_add(op, arg, offset, bytes)?;
            return Ok(Self { arg, ptr, offset, bytes, align: format.align(), access });
        };
        Self::new(op, arg, ptr, dtype, reach, access)?.with_offset(op, offset)
    }

    /// Bytes of any alignment, from the handle's start.
    #[must_use]
    pub const fn bytes(arg: &'static str, ptr: u64, bytes: usize, access: Access) -> Self {
        Self { arg, ptr, offset: 0, bytes, align: 1, access }
    }

    /// The operand, starting `elements` elements later. Where nothing is touched, it may be any number.
    ///
    /// # Errors
    /// [`Overflow`](BackendError::Overflow) if its end doesn't fit in `usize`.
    pub fn with_offset(self, op: &'static str, elements: usize) -> BackendResult<Self> {
        if self.bytes == 0 {
            return Ok(self);
        }
        let offset = crate::checked_product(op, self.arg, &[elements, self.align])?;
        crate::checked_add(op, self.arg, offset, self.bytes)?;
        Ok(Self { offset, ..self })
    }

    /// An operand that the call leaves out: touched nowhere, never looked up.
    #[must_use]
    pub const fn absent(arg: &'static str) -> Self {
        Self::bytes(arg, 0, 0, Access::Read)
    }

    /// [`new`](Self::new) for an optional handle.
    pub fn optional(
        op: &'static str,
        arg: &'static str,
        ptr: Option<u64>,
        dtype: DType,
        elements: usize,
        access: Access,
    ) -> BackendResult<Self> {
        match ptr {
            Some(ptr) => Self::new(op, arg, ptr, dtype, elements, access),
            None => Ok(Self::absent(arg)),
        }
    }
}

/// The memory behind a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Identifies the allocation; views of one allocation share it.
    pub allocation: u64,
    /// Byte offset of the handle in the allocation.
    pub offset: usize,
    /// Bytes from there to the end of the handle's memory.
    pub len: usize,
}

/// Checks every operand against the memory behind its handle: that it is live, long enough, aligned, and that
/// no output overlaps another operand except where it may be exactly that operand.
///
/// `lookup` is called once for each operand that touches memory, in order, and returns `None` for a handle
/// that is not live.
///
/// # Errors
/// [`InvalidHandle`](BackendError::InvalidHandle), [`BufferTooSmall`](BackendError::BufferTooSmall),
/// [`Misaligned`](BackendError::Misaligned), [`Overlap`](BackendError::Overlap), each for the first operand
/// at fault.
pub fn check<const N: usize>(
    op: &'static str,
    operands: &[Operand; N],
    mut lookup: impl FnMut(u64) -> Option<Region>,
) -> BackendResult<()> {
    let mut regions = [None; N];
    for (operand, slot) in operands.iter().zip(&mut regions) {
        if operand.bytes == 0 {
            continue;
        }
        let Operand { arg, ptr, offset, bytes, align, .. } = *operand;
        let need = offset.saturating_add(bytes);
        let region = lookup(ptr).ok_or(BackendError::InvalidHandle { op, arg, ptr })?;
        if region.len < need {
            return Err(BackendError::BufferTooSmall { op, arg, have: region.len, need });
        }
        if region.offset % align != 0 {
            return Err(BackendError::Misaligned { op, arg, offset: region.offset, align });
        }
        // Within the allocation, so the sum can't wrap.
        *slot = Some(Region { offset: region.offset + offset, len: bytes, ..region });
    }
    for (i, a) in operands.iter().enumerate().filter(|(_, a)| a.access == Access::Write) {
        for (j, b) in operands.iter().enumerate().filter(|&(j, _)| j != i) {
            let (Some(first), Some(second)) = (regions[i], regions[j]) else {
                continue;
            };
            let same = first == second && b.access == Access::ReadInPlace;
            if overlap(first, second) && !same {
                return Err(BackendError::Overlap { op, a: a.arg, b: b.arg });
            }
        }
    }
    Ok(())
}

fn overlap(a: Region, b: Region) -> bool {
    // Offsets and lengths lie within an allocation, so the sums can't wrap.
    a.allocation == b.allocation && a.offset < b.offset + b.len && b.offset < a.offset + a.len
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn operand(ptr: u64, bytes: usize, access: Access) -> Operand {
        Operand { arg: "x", ptr, offset: 0, bytes, align: 4, access }
    }

    /// Handles 1 and 2 are allocations of 64 bytes; 10 + k is handle 1 from byte k.
    fn lookup(ptr: u64) -> Option<Region> {
        match ptr {
            1 | 2 => Some(Region { allocation: ptr, offset: 0, len: 64 }),
            10..=60 => Some(Region { allocation: 1, offset: ptr as usize - 10, len: 74 - ptr as usize }),
            _ => None,
        }
    }

    fn kind(operands: [Operand; 2]) -> Option<ErrorKind> {
        check("t", &operands, lookup).err().map(|e| e.kind())
    }

    #[test]
    fn faults_are_told_apart() {
        let good = operand(2, 64, Access::Read);
        assert_eq!(kind([good, operand(1, 64, Access::Write)]), None);
        assert_eq!(kind([good, operand(3, 4, Access::Write)]), Some(ErrorKind::InvalidHandle));
        assert_eq!(kind([good, operand(1, 65, Access::Write)]), Some(ErrorKind::BufferTooSmall));
        assert_eq!(kind([good, operand(12, 4, Access::Write)]), Some(ErrorKind::Misaligned));
        assert_eq!(kind([good, operand(2, 4, Access::Write)]), Some(ErrorKind::Overlap));
    }

    #[test]
    fn an_operand_that_touches_nothing_is_not_looked_up() {
        assert_eq!(kind([operand(99, 0, Access::Read), operand(1, 4, Access::Write)]), None);
    }

    #[test]
    fn an_offset_moves_the_memory_that_is_touched() {
        let at = |elements, ptr, bytes, access| operand(ptr, bytes, access).with_offset("t", elements);
        let read = |elements| at(elements, 1, 32, Access::Read).unwrap();
        let write = |elements| at(elements, 1, 32, Access::Write).unwrap();
        assert_eq!(kind([read(0), write(8)]), None);
        assert_eq!(kind([read(0), write(7)]), Some(ErrorKind::Overlap));
        assert_eq!(kind([read(0), write(9)]), Some(ErrorKind::BufferTooSmall));
        // What a view and an offset name together is what the other way round names.
        assert_eq!(kind([operand(14, 8, Access::ReadInPlace), at(1, 1, 8, Access::Write).unwrap()]), None);
        assert!(at(usize::MAX, 1, 4, Access::Read).is_err());
        assert_eq!(at(usize::MAX, 1, 0, Access::Read).map(|operand| operand.offset), Ok(0));
    }

    #[test]
    fn in_place_is_exact_or_an_overlap() {
        let input = operand(1, 32, Access::ReadInPlace);
        assert_eq!(kind([input, operand(1, 32, Access::Write)]), None);
        assert_eq!(kind([input, operand(14, 32, Access::Write)]), Some(ErrorKind::Overlap));
        assert_eq!(kind([input, operand(42, 32, Access::Write)]), None);
        assert_eq!(
            kind([operand(1, 32, Access::Read), operand(1, 32, Access::Write)]),
            Some(ErrorKind::Overlap)
        );
    }
}
