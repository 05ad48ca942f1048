//! Device memory as ONNX Runtime sees it: addresses that no process may touch.
//!
//! ONNX Runtime computes with the addresses that an allocator returns: it packs several tensors into one
//! block. A handle of a backend is no address, so blocks are ranges of an invented address space. A block has
//! no memory of its own: it remembers which tensor was last written to which of its places. Writing stores the
//! tensor, reading returns it, and neither copies an element.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::tensor::{Tensor, elements};

/// Where the address space begins: above what user space is given on today's 64-bit systems.
const BASE: u64 = 1 << 62;

/// Blocks begin at multiples of this, which is a multiple of every alignment that ONNX Runtime asks for.
const PAGE: u64 = 4096;

/// A range of the address space.
#[derive(Debug, Default)]
struct Block {
    bytes: u64,
    /// What was written, by the offset of its first byte.
    pieces: BTreeMap<u64, Tensor>,
}

/// The blocks that are allocated, by address.
#[derive(Debug)]
pub(crate) struct AddressSpace {
    next: u64,
    blocks: BTreeMap<u64, Block>,
}

/// The address space of the process. Addresses are unique among devices.
pub(crate) static MEMORY: Mutex<AddressSpace> = Mutex::new(AddressSpace::new());

impl AddressSpace {
    const fn new() -> Self {
        Self { next: BASE, blocks: BTreeMap::new() }
    }

    /// An address for `bytes` bytes, none of which is written.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Result<u64> {
        let address = self.next;
        let end = bytes.max(1).checked_next_multiple_of(PAGE).and_then(|bytes| address.checked_add(bytes));
        self.next = end.ok_or(Error::Address { address, what: "the address space is used up" })?;
        self.blocks.insert(address, Block { bytes, ..Block::default() });
        Ok(address)
    }

    /// Gives a block back, and the tensors in it.
    pub(crate) fn free(&mut self, address: u64) -> Option<impl Drop + use<>> {
        self.blocks.remove(&address).map(|block| block.pieces)
    }

    /// Puts a tensor at an address, in place of what overlaps it. Returns what was replaced, to be dropped
    /// outside of the lock.
    pub(crate) fn write(&mut self, address: u64, tensor: Tensor) -> Result<Vec<Tensor>> {
        let bytes = bytes_of(&tensor);
        let (offset, block) = self.find(address, bytes)?;
        let end = offset.saturating_add(bytes.max(1));
        let overlapping = block.pieces.range(..end).rev();
        let overlapping: Vec<u64> = overlapping
            .take_while(|&(&start, piece)| start.saturating_add(bytes_of(piece).max(1)) > offset)
            .map(|(&start, _)| start)
            .collect();
        let replaced = overlapping.iter().filter_map(|start| block.pieces.remove(start)).collect();
        block.pieces.insert(offset, tensor);
        Ok(replaced)
    }

    /// The tensor that was written to an address. `kind` and `shape` are the reader's; if the element types
    /// differ, one of the two copied bytes without telling what they are.
    pub(crate) fn read(&mut self, address: u64, kind: Kind, shape: &[usize]) -> Result<Tensor> {
        let bytes = (elements(shape)? * kind.size()) as u64;
        let (offset, block) = self.find(address, bytes)?;
        let piece = block.pieces.get(&offset);
        let piece = piece.ok_or(Error::Address { address, what: "nothing was written there" })?;
        let is_readable = piece.kind == kind || piece.kind == Kind::Raw || kind == Kind::Raw;
        if !is_readable || bytes_of(piece) != bytes {
            return Err(Error::Address { address, what: "a tensor of another type or size lies there" });
        }
        if piece.kind == kind { piece.reshaped(shape.to_vec()) } else { Ok(piece.clone()) }
    }

    fn find(&mut self, address: u64, bytes: u64) -> Result<(u64, &mut Block)> {
        let below = self.blocks.range_mut(..=address).next_back();
        let (start, block) = below.ok_or(Error::Address { address, what: "it was never allocated" })?;
        let offset = address - start;
        if offset.checked_add(bytes).is_none_or(|end| end > block.bytes) {
            return Err(Error::Address { address, what: "it lies outside of every block" });
        }
        Ok((offset, block))
    }
}

fn bytes_of(tensor: &Tensor) -> u64 {
    (tensor.count() * tensor.kind.size()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::Numbers;

    fn vector(numbers: &[i64]) -> Tensor {
        Tensor::vector(numbers.to_vec())
    }

    #[test]
    fn tensors_share_a_block() {
        let mut memory = AddressSpace::new();
        let block = memory.allocate(32).unwrap();
        memory.write(block, vector(&[1, 2])).unwrap();
        memory.write(block + 16, vector(&[3, 4])).unwrap();
        let read = memory.read(block + 16, Kind::I64, &[2, 1]).unwrap();
        assert_eq!((read.ints().unwrap(), read.shape), (vec![3, 4], vec![2, 1]));
    }

    #[test]
    fn what_is_overwritten_is_gone() {
        let mut memory = AddressSpace::new();
        let block = memory.allocate(32).unwrap();
        for offset in [0, 16] {
            memory.write(block + offset, vector(&[1, 2])).unwrap();
        }
        assert_eq!(memory.write(block + 8, vector(&[5, 6])).unwrap().len(), 2);
        assert!(memory.read(block, Kind::I64, &[2]).is_err());
        assert_eq!(memory.read(block + 8, Kind::I64, &[2]).unwrap().ints().unwrap(), [5, 6]);
    }

    #[test]
    fn wrong_addresses_are_errors() {
        let mut memory = AddressSpace::new();
        let block = memory.allocate(8).unwrap();
        assert!(memory.write(block, vector(&[1, 2])).is_err(), "longer than the block");
        assert!(memory.read(block, Kind::I64, &[1]).is_err(), "nothing was written");
        memory.write(block, vector(&[1])).unwrap();
        assert!(memory.read(block, Kind::F32, &[2]).is_err(), "another type");
        assert!(memory.read(0x1000, Kind::I64, &[1]).is_err(), "no address of ours");
        assert!(memory.free(block).is_some());
        assert!(memory.read(block, Kind::I64, &[1]).is_err(), "freed");
        assert!(memory.free(block).is_none());
    }

    #[test]
    fn an_empty_tensor_has_a_place_of_its_own() {
        let mut memory = AddressSpace::new();
        let block = memory.allocate(0).unwrap();
        let empty = Tensor::host(Kind::F32, vec![0, 3], Numbers::Float(vec![])).unwrap();
        memory.write(block, empty).unwrap();
        assert_eq!(memory.read(block, Kind::F32, &[0, 3]).unwrap().shape, [0, 3]);
    }
}
