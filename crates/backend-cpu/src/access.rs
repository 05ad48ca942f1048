//! From handles to slices.
//!
//! Each allocation has a lock of its own. A call takes the locks of all its operands before it computes, in
//! the order of the allocations' keys, and keeps them until it has finished. So calls can't wait for each
//! other in a circle, and what several threads compute is as if their calls had run one after the other.

use std::sync::Arc;

use backend_api::support::{Access, Operand, check};
use backend_api::{BackendError, BackendResult};
use bytemuck::{cast_slice, cast_slice_mut};
use parking_lot::{RwLockReadGuard, RwLockWriteGuard};

use crate::memory::{AllocationKey, Memory, Named, Storage};
use crate::room::NoRoom;

/// What an operation reads through one operand.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Input<'a> {
    /// The bytes named; none for an operand that touches nothing and for the output.
    Bytes(&'a [u8]),
    /// The output itself, not yet overwritten.
    InPlace,
    /// The second output, not yet overwritten.
    InSecond,
}

impl<'a> Input<'a> {
    /// The elements of an operand that can't be the output.
    pub(crate) fn elements<T: bytemuck::Pod>(self) -> &'a [T] {
        self.separate().unwrap_or_default()
    }

    /// The elements, unless they are in an output.
    pub(crate) fn separate<T: bytemuck::Pod>(self) -> Option<&'a [T]> {
        match self {
            // No bytes have no alignment either.
            Self::Bytes([]) => Some(&[]),
            Self::Bytes(bytes) => Some(cast_slice(bytes)),
            Self::InPlace | Self::InSecond => None,
        }
    }
}

/// Where a checked operand lies.
#[derive(Clone, Copy, PartialEq)]
struct Place {
    allocation: AllocationKey,
    start: usize,
    end: usize,
}

struct Claim {
    allocation: AllocationKey,
    storage: Arc<Storage>,
    write: bool,
}

enum Guard<'a> {
    Read(RwLockReadGuard<'a, Box<[u32]>>),
    Write(RwLockWriteGuard<'a, Box<[u32]>>),
}

/// A part of an allocation that is only read.
struct Shared<'a> {
    allocation: AllocationKey,
    start: usize,
    bytes: &'a [u8],
}

impl<'a> Shared<'a> {
    /// The bytes of a place, if all of them are here.
    fn part(&self, place: Place) -> Option<&'a [u8]> {
        let first = place.start.checked_sub(self.start).filter(|_| place.allocation == self.allocation)?;
        self.bytes.get(first..place.end - self.start)
    }
}

/// A call of an operation: the memory that its handles name, and what errors name it.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) op: &'static str,
}

impl Call<'_> {
    /// Checks the operands, then calls `work` with what each one reads, in order, and with the bytes of the
    /// one that is written. Does nothing when that one is empty.
    ///
    /// # Errors
    /// As [`check`].
    pub(crate) fn access<const N: usize>(
        self,
        operands: &[Operand; N],
        work: impl FnOnce([Input<'_>; N], &mut [u8]),
    ) -> BackendResult<()> {
        self.access_two(operands, |inputs, [output, _]| work(inputs, output))
    }

    /// [`access`](Self::access) with the bytes of the first two outputs; none for a second that isn't there.
    ///
    /// # Errors
    /// As [`check`].
    pub(crate) fn access_two<const N: usize>(
        self,
        operands: &[Operand; N],
        work: impl FnOnce([Input<'_>; N], [&mut [u8]; 2]),
    ) -> BackendResult<()> {
        const { assert!(N <= MOST_OPERANDS, "there is room for all") }
        let Self { memory, op } = self;
        let turn = memory.turn();
        let (places, claims) = self.resolve(operands)?;
        if turn.is_none() {
            return operands
                .iter()
                .filter(|operand| operand.bytes > 0)
                .try_for_each(|it| memory.hold(op, it));
        }
        let mut work = Some(work);
        lock(operands, &places, &claims, &mut |inputs, outputs| {
            if let Some(work) = work.take() {
                work(std::array::from_fn(|i| inputs[i]), outputs);
            }
        });
        Ok(())
    }

    /// [`access`](Self::access) for work that may find no room for memory of its own, before it has written anything.
    ///
    /// # Errors
    /// As [`check`], and [`OutOfMemory`](BackendError::OutOfMemory).
    pub(crate) fn try_access<const N: usize>(
        self,
        operands: &[Operand; N],
        work: impl FnOnce([Input<'_>; N], &mut [u8]) -> Result<(), NoRoom>,
    ) -> BackendResult<()> {
        self.try_access_two(operands, |inputs, [output, _]| work(inputs, output))
    }

    /// [`access_two`](Self::access_two) for work that may find no room, as of [`try_access`](Self::try_access).
    ///
    /// # Errors
    /// As [`check`], and [`OutOfMemory`](BackendError::OutOfMemory).
    pub(crate) fn try_access_two<const N: usize>(
        self,
        operands: &[Operand; N],
        work: impl FnOnce([Input<'_>; N], [&mut [u8]; 2]) -> Result<(), NoRoom>,
    ) -> BackendResult<()> {
        let mut outcome = Ok(());
        self.access_two(operands, |inputs, outputs| outcome = work(inputs, outputs))?;
        let in_use = || self.memory.stats().in_use;
        outcome.map_err(|NoRoom { bytes }| BackendError::OutOfMemory { requested: bytes, in_use: in_use() })
    }

    /// Checks the operands of a call that comes later.
    ///
    /// # Errors
    /// As [`check`].
    pub(crate) fn check<const N: usize>(self, operands: &[Operand; N]) -> BackendResult<()> {
        self.memory.look(|named| check(self.op, operands, |ptr| named(ptr).map(|named| named.region)))
    }

    /// Checks the operands and finds their memory, each allocation once and in the order of the keys.
    fn resolve<const N: usize>(
        self,
        operands: &[Operand; N],
    ) -> BackendResult<([Option<Place>; N], Vec<Claim>)> {
        let op = self.op;
        self.memory.look(|named| {
            check(op, operands, |ptr| named(ptr).map(|named| named.region))?;
            let mut places = [None; N];
            let mut claims: Vec<Claim> = Vec::with_capacity(N);
            for (operand, slot) in operands.iter().zip(&mut places) {
                let &Operand { arg, ptr, offset, bytes, .. } = operand;
                if bytes == 0 {
                    continue;
                }
                let Named { allocation, storage, region } =
                    named(ptr).ok_or(BackendError::InvalidHandle { op, arg, ptr })?;
                let start = region.offset + offset;
                *slot = Some(Place { allocation, start, end: start + bytes });
                let write = operand.access == Access::Write;
                match claims.iter_mut().find(|claim| claim.allocation == allocation) {
                    Some(claim) => claim.write |= write,
                    None => claims.push(Claim { allocation, storage, write }),
                }
            }
            claims.sort_by_key(|claim| claim.allocation);
            Ok((places, claims))
        })
    }
}

/// Operands of an operation at most.
const MOST_OPERANDS: usize = 16;

/// What is done with what operands read, and with the bytes of up to two outputs. One type for all, as every other
/// would have a copy of [`lock`].
type Work<'a> = dyn FnMut(&[Input<'_>], [&mut [u8]; 2]) + 'a;

/// Calls `work` with the memory of operands, which is locked meanwhile; doesn't, if the first output is empty.
fn lock(operands: &[Operand], places: &[Option<Place>], claims: &[Claim], work: &mut Work<'_>) {
    let mut written = (0..operands.len()).filter(|&i| operands[i].access == Access::Write);
    let written = [written.next(), written.next()];
    let outputs = written.map(|i| i.and_then(|i| places[i]));
    if written[0].is_some() && outputs[0].is_none() {
        return;
    }

    let mut guards: Vec<(AllocationKey, Guard<'_>)> = claims.iter().map(Claim::lock).collect();
    let mut shared: Vec<Shared<'_>> = Vec::with_capacity(guards.len() + 2);
    // No bytes, but at an address that words may have: a cast to elements asks for that even of none.
    let mut slices: [&mut [u8]; 2] = [(); 2].map(|()| cast_slice_mut::<u32, u8>(&mut []));
    for (allocation, guard) in &mut guards {
        let mut rest: &mut [u8] = match guard {
            Guard::Read(words) => {
                shared.push(Shared { allocation: *allocation, start: 0, bytes: cast_slice(words) });
                continue;
            }
            Guard::Write(words) => cast_slice_mut(words),
        };
        // The check lets no two outputs share bytes, so that what is left of the memory lies around them.
        let mut cuts = [0, 1].map(|i| (i, outputs[i].filter(|place| place.allocation == *allocation)));
        cuts.sort_unstable_by_key(|(_, place)| place.map(|place| place.start));
        let mut start = 0;
        for (i, place) in cuts {
            let Some(place) = place else { continue };
            let (before, tail) = rest.split_at_mut(place.start - start);
            let (output, after) = tail.split_at_mut(place.end - place.start);
            shared.push(Shared { allocation: *allocation, start, bytes: before });
            slices[i] = output;
            (rest, start) = (after, place.end);
        }
        shared.push(Shared { allocation: *allocation, start, bytes: rest });
    }

    let input = |(operand, place): (&Operand, &Option<Place>)| match *place {
        Some(place) if operand.access != Access::Write => {
            let found = shared.iter().find_map(|shared| shared.part(place));
            // The check lets an input share bytes with an output only where they are the same.
            let in_place = if outputs[1] == Some(place) { Input::InSecond } else { Input::InPlace };
            found.map_or(in_place, Input::Bytes)
        }
        _ => Input::Bytes(&[]),
    };
    let mut inputs = [Input::Bytes(&[]); MOST_OPERANDS];
    inputs.iter_mut().zip(operands.iter().zip(places)).for_each(|(slot, of)| *slot = input(of));
    work(&inputs, slices);
}

impl Claim {
    fn lock(&self) -> (AllocationKey, Guard<'_>) {
        let guard =
            if self.write { Guard::Write(self.storage.write()) } else { Guard::Read(self.storage.read()) };
        (self.allocation, guard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backend_api::DType;

    fn operand(ptr: u64, elements: usize, access: Access) -> Operand {
        Operand::new("t", "x", ptr, DType::U32, elements, access).unwrap()
    }

    #[test]
    fn inputs_before_after_in_and_apart_from_the_output() {
        let memory = Memory::new();
        let call = Call { memory: &memory, op: "t" };
        let whole = memory.alloc("alloc", 24).unwrap();
        let other = memory.alloc("alloc", 4).unwrap();
        let bytes: Vec<u8> = (0..24).collect();
        let write = |ptr, bytes: &[u8]| {
            let all = [operand(ptr, bytes.len() / 4, Access::Write)];
            call.access(&all, |_, output| output.copy_from_slice(bytes)).unwrap();
        };
        write(whole, &bytes);
        write(other, &[9; 4]);
        let part = |offset| memory.view(whole, offset, 8).unwrap();
        let operands = [
            operand(part(0), 2, Access::Read),
            operand(part(8), 2, Access::Write),
            operand(part(16), 2, Access::Read),
            operand(part(8), 2, Access::ReadInPlace),
            operand(other, 1, Access::Read),
            Operand::absent("absent"),
        ];
        let check = |inputs: [Input<'_>; 6], output: &mut [u8]| {
            let bytes = |i: usize| inputs[i].separate::<u8>().map(<[u8]>::to_vec);
            assert_eq!(bytes(0), Some((0..8).collect()));
            assert_eq!(output, (8..16).collect::<Vec<u8>>());
            assert_eq!(bytes(2), Some((16..24).collect()));
            assert_eq!(bytes(3), None);
            assert_eq!(bytes(4), Some(vec![9; 4]));
            assert_eq!(bytes(5), Some(vec![]));
        };
        call.access(&operands, check).unwrap();
    }
}
