use super::*;
use backend_api::ErrorKind;

fn kind<T>(result: BackendResult<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[test]
fn memory_lives_until_its_last_handle_is_freed() {
    let memory = Memory::new();
    let whole = memory.alloc("alloc", 10).unwrap();
    let part = memory.view(whole, 2, 4).unwrap();
    let inner = memory.view(part, 4, 0).unwrap();
    assert_eq!((memory.stats().in_use, memory.stats().handles), (12, 3));
    memory.free(whole).unwrap();
    memory.free(part).unwrap();
    assert_eq!(memory.stats().in_use, 12);
    assert_eq!(kind(memory.free(whole)), Some(ErrorKind::InvalidHandle));
    assert_eq!(kind(memory.view(part, 0, 1)), Some(ErrorKind::InvalidHandle));
    memory.free(inner).unwrap();
    assert_eq!((memory.stats().in_use, memory.stats().peak), (0, 12));
}

#[test]
fn a_reused_slot_has_another_handle() {
    let memory = Memory::new();
    let first = memory.alloc("alloc", 4).unwrap();
    memory.free(first).unwrap();
    let second = memory.alloc("alloc", 4).unwrap();
    assert_ne!(first, second);
    assert!(memory.look(|named| named(first).is_none()));
}

#[test]
fn numbers_that_no_handle_has_are_not_live() {
    let memory = Memory::new();
    let live = memory.alloc("alloc", 4).unwrap();
    for ptr in [0, 1, u64::MAX, live ^ 1, live ^ (1 << 32), live ^ (1 << 63), live & 0xFFFF_FFFF] {
        let is_known = memory.look(|named| named(ptr).is_some());
        assert!(ptr == live || !is_known, "{ptr:#x}");
    }
    let others: Vec<Memory> = (0..100).map(|_| Memory::new()).collect();
    for other in &others {
        other.alloc("alloc", 4).unwrap();
        assert!(other.look(|named| named(live).is_none()));
    }
}

#[test]
fn a_handle_plus_an_offset_is_not_live() {
    let memory = Memory::new();
    let live: Vec<u64> = (0..2000).map(|_| memory.alloc("alloc", 4).unwrap()).collect();
    for offset in (1..=64).chain((64..=1 << 20).step_by(4093)) {
        for &handle in live.iter().step_by(100) {
            let near = [handle.wrapping_add(offset), handle.wrapping_sub(offset)];
            assert!(memory.look(|named| near.iter().all(|&ptr| named(ptr).is_none())));
        }
    }
}

#[test]
fn a_view_stays_inside_its_handle() {
    let memory = Memory::new();
    let part = memory.view(memory.alloc("alloc", 16).unwrap(), 4, 8).unwrap();
    assert!(memory.view(part, 8, 0).is_ok());
    assert_eq!(kind(memory.view(part, 4, 5)), Some(ErrorKind::BufferTooSmall));
    assert_eq!(kind(memory.view(part, usize::MAX, 2)), Some(ErrorKind::Overflow));
}

#[test]
fn too_much_is_an_error() {
    let memory = Memory::new();
    assert_eq!(kind(memory.alloc("alloc", usize::MAX)), Some(ErrorKind::Limit));
    assert_eq!(kind(memory.alloc("alloc", MAX_ALLOC_BYTES)), Some(ErrorKind::OutOfMemory));
    memory.set_budget(Some(100));
    let half = memory.alloc("alloc", 60).unwrap();
    assert_eq!(kind(memory.alloc("alloc", 60)), Some(ErrorKind::OutOfMemory));
    memory.free(half).unwrap();
    assert!(memory.alloc("alloc", 100).is_ok());
    assert!(memory.alloc("alloc", 0).is_ok());
}
