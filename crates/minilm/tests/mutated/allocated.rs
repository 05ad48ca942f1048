//! How much memory a piece of work asks for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which counts what the current thread asks for.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static ASKED_FOR: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    // A thread that is ending has nothing to count with.
    _ = ASKED_FOR.try_with(|asked| asked.set(asked.get().saturating_add(bytes)));
}

// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller keeps the promises that this method asks for, which are those of the one called.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count(new_size.saturating_sub(layout.size()));
        // SAFETY: as in `alloc`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

/// All the bytes that `work` asks for in this thread, given back or not.
pub(super) fn by<T>(work: impl FnOnce() -> T) -> (T, usize) {
    ASKED_FOR.set(0);
    let done = work();
    (done, ASKED_FOR.get())
}
