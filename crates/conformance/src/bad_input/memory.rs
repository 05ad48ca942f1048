//! alloc, free, views, transfers, copy_dtod and fill.

use backend_api::{BackendError, BackendResult, ComputeBackend, DType, ErrorKind};

use super::expect::{Expect, INVALID, OVERFLOW, TOO_SMALL, too_small};
use super::operation::encode;
use super::{Handles, Operation, Role, Slot};

const HALF: usize = usize::MAX / 2 + 1;
const NO_ROOM: Expect = Expect::OneOf(&[ErrorKind::Limit, ErrorKind::OutOfMemory]);

pub(super) fn operations() -> Vec<Operation> {
    let mut operations = vec![alloc(), free(), view(), copy_htod(), copy_dtoh(), copy_dtod()];
    operations.extend(DType::ALL.map(fill));
    operations
}

fn bystander() -> Vec<Slot> {
    vec![Slot::new("bystander", Role::Input, DType::F32, 16)]
}

/// An operation whose handles are tabled by hand: its good call leaves no operand behind.
pub(super) fn without_operands(
    name: &'static str,
    good: impl Fn(&dyn ComputeBackend, &Handles) -> BackendResult<()> + Send + Sync + 'static,
) -> Operation {
    let mut operation = Operation::new(name, bystander(), None, good);
    operation.spoilable = false;
    operation
}

fn alloc() -> Operation {
    without_operands("alloc", |b, _| b.free(b.alloc(20)?))
        .bad("usize::MAX", NO_ROOM, |b, _| b.alloc(usize::MAX).map(drop))
        .bad("usize::MAX − 3", NO_ROOM, |b, _| b.alloc(usize::MAX - 3).map(drop))
        .bad("half of the range", NO_ROOM, |b, _| b.alloc(HALF).map(drop))
        .bad("isize::MAX", NO_ROOM, |b, _| b.alloc(isize::MAX as usize).map(drop))
        .bad("2^60", NO_ROOM, |b, _| b.alloc(1 << 60).map(drop))
}

fn free() -> Operation {
    let unknown = |ptr| Expect::Exactly(BackendError::InvalidHandle { op: "free", arg: "ptr", ptr });
    without_operands("free", |b, _| b.free(b.alloc(20)?))
        .bad("0", unknown(0), |b, _| b.free(0))
        .bad("999,999", unknown(999_999), |b, _| b.free(999_999))
        .bad("u64::MAX", unknown(u64::MAX), |b, _| b.free(u64::MAX))
        .bad("an unknown handle", INVALID, |b, h| b.free(h.unknown))
        .bad("a freed handle", INVALID, |b, h| b.free(h.freed))
        .bad("another backend's handle", INVALID, |b, h| b.free(h.foreign))
        .bad("a handle twice", INVALID, |b, _| {
            let ptr = b.alloc(16)?;
            b.free(ptr)?;
            b.free(ptr)
        })
        .bad("a handle twice, its slot in use again", INVALID, |b, _| {
            let ptr = b.alloc(16)?;
            b.free(ptr)?;
            let again = b.alloc(16)?;
            let result = b.free(ptr);
            b.free(again)?;
            result
        })
        .bad("a view twice", INVALID, |b, h| {
            let view = b.view(h[0], 4, 8)?;
            b.free(view)?;
            b.free(view)
        })
}

fn view() -> Operation {
    let beyond = |need| too_small("view", "ptr", 64, need);
    fn attempt(b: &dyn ComputeBackend, ptr: u64, offset: usize, len: usize) -> BackendResult<()> {
        b.free(b.view(ptr, offset, len)?)
    }
    without_operands("view", |b, h| attempt(b, h[0], 4, 60))
        .bad("of 0", INVALID, |b, _| attempt(b, 0, 0, 4))
        .bad("of nothing at 0", INVALID, |b, _| attempt(b, 0, 0, 0))
        .bad("of an unknown handle", INVALID, |b, h| attempt(b, h.unknown, 0, 4))
        .bad("of a freed handle", INVALID, |b, h| attempt(b, h.freed, 0, 4))
        .bad("of another backend's handle", INVALID, |b, h| attempt(b, h.foreign, 0, 4))
        .bad("a byte too long", beyond(65), |b, h| attempt(b, h[0], 0, 65))
        .bad("a byte too far", beyond(65), |b, h| attempt(b, h[0], 1, 64))
        .bad("of nothing beyond the end", beyond(65), |b, h| attempt(b, h[0], 65, 0))
        .bad("far beyond the end", beyond(1004), |b, h| attempt(b, h[0], 1000, 4))
        .bad("offset usize::MAX", OVERFLOW, |b, h| attempt(b, h[0], usize::MAX, 4))
        .bad("length usize::MAX", OVERFLOW, |b, h| attempt(b, h[0], 4, usize::MAX))
        .bad("both half of the range", OVERFLOW, |b, h| attempt(b, h[0], HALF, HALF))
        .bad("length usize::MAX from 0", beyond(usize::MAX), |b, h| attempt(b, h[0], 0, usize::MAX))
        .bad("beyond a view, inside its allocation", too_small("view", "ptr", 8, 12), |b, h| {
            let view = b.view(h[0], 8, 8)?;
            let result = attempt(b, view, 4, 8);
            b.free(view)?;
            result
        })
        .bad("of a freed view", INVALID, |b, h| {
            let view = b.view(h[0], 8, 8)?;
            b.free(view)?;
            attempt(b, view, 0, 4)
        })
}

fn copy_htod() -> Operation {
    let op = "copy_htod";
    let slots = vec![Slot::new("dst", Role::Output, DType::F32, 10).unaligned()];
    Operation::new(op, slots, 2.0, |b, h| b.copy_htod(h[0], &encode(DType::F32, 2.0).repeat(10)))
        .bad("a byte too long", too_small(op, "dst", 40, 41), |b, h| b.copy_htod(h[0], &[7; 41]))
        .bad("much too long", too_small(op, "dst", 40, 1 << 20), |b, h| b.copy_htod(h[0], &[7; 1 << 20]))
        .bad("beyond a view, inside its allocation", too_small(op, "dst", 8, 9), |b, h| {
            let view = b.view(h[0], 8, 8)?;
            let result = b.copy_htod(view, &[7; 9]);
            b.free(view)?;
            result
        })
        .bad("to a freed view", INVALID, |b, h| {
            let view = b.view(h[0], 8, 8)?;
            b.free(view)?;
            b.copy_htod(view, &[7; 8])
        })
}

fn copy_dtoh() -> Operation {
    /// A failed read leaves the host memory alone, or this is no error.
    fn read(b: &dyn ComputeBackend, ptr: u64, len: usize) -> BackendResult<()> {
        let mut dst = vec![7; len];
        let result = b.copy_dtoh(&mut dst, ptr);
        match result {
            Err(_) if dst.iter().any(|&byte| byte != 7) => Ok(()),
            other => other,
        }
    }
    let op = "copy_dtoh";
    let slots = vec![Slot::new("src", Role::Input, DType::F32, 10).unaligned()];
    Operation::new(op, slots, None, |b, h| read(b, h[0], 40))
        .bad("a byte too long", too_small(op, "src", 40, 41), |b, h| read(b, h[0], 41))
        .bad("much too long", too_small(op, "src", 40, 1 << 20), |b, h| read(b, h[0], 1 << 20))
        .bad("beyond a view, inside its allocation", too_small(op, "src", 8, 9), |b, h| {
            let view = b.view(h[0], 8, 8)?;
            let result = read(b, view, 9);
            b.free(view)?;
            result
        })
        .bad("from a freed view", INVALID, |b, h| {
            let view = b.view(h[0], 8, 8)?;
            b.free(view)?;
            read(b, view, 8)
        })
}

fn copy_dtod() -> Operation {
    let op = "copy_dtod";
    let slots = vec![
        Slot::new("dst", Role::Output, DType::F32, 10).unaligned(),
        Slot::new("src", Role::Input, DType::F32, 10).unaligned(),
    ];
    Operation::new(op, slots, 1.0, |b, h| b.copy_dtod(h[0], h[1], 40))
        .bad("a byte too long", TOO_SMALL, |b, h| b.copy_dtod(h[0], h[1], 41))
        .bad("2^32 + 40 bytes", TOO_SMALL, |b, h| b.copy_dtod(h[0], h[1], (1 << 32) + 40))
        .bad("usize::MAX bytes", TOO_SMALL, |b, h| b.copy_dtod(h[0], h[1], usize::MAX))
        .bad("half of the range", TOO_SMALL, |b, h| b.copy_dtod(h[0], h[1], HALF))
        .bad("onto itself", Expect::Kind(ErrorKind::Overlap), |b, h| b.copy_dtod(h[0], h[0], 40))
        .bad("part of it onto itself", Expect::Kind(ErrorKind::Overlap), |b, h| b.copy_dtod(h[0], h[0], 4))
}

fn fill(element: DType) -> Operation {
    let op = "fill";
    let slots = vec![Slot::new("dst", Role::Output, element, 10)];
    let bytes = element.size();
    let fill = move |b: &dyn ComputeBackend, h: &Handles, n| b.fill(h[0], element, n, 3.0);
    Operation::new(op, slots, 3.0, move |b, h| fill(b, h, 10))
        .variant(element)
        .bad("an element too many", too_small(op, "dst", 10 * bytes, 11 * bytes), move |b, h| fill(b, h, 11))
        .bad("n 2^32", TOO_SMALL, move |b, h| fill(b, h, 1 << 32))
        .bad("n 2^31 + 10", TOO_SMALL, move |b, h| fill(b, h, (1 << 31) + 10))
        .bad("n usize::MAX", OVERFLOW, move |b, h| fill(b, h, usize::MAX))
        .bad("n half of the range", OVERFLOW, move |b, h| fill(b, h, HALF))
}
