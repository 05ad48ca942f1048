//! Memory that an operation needs for itself.

use std::alloc::{Layout, handle_alloc_error};

use bytemuck::Zeroable;

/// There is no room for so many bytes.
#[derive(Debug)]
pub(crate) struct NoRoom {
    pub(crate) bytes: usize,
}

impl NoRoom {
    /// Ends the process, as a vector that can't grow does.
    pub(crate) fn abort<T>(self) -> T {
        handle_alloc_error(Layout::array::<u8>(self.bytes).unwrap_or(Layout::new::<u8>()))
    }
}

/// A number of zeros, which the system gives for free.
pub(crate) fn zeros<T: Zeroable>(count: usize) -> Result<Vec<T>, NoRoom> {
    let bytes = count.saturating_mul(size_of::<T>());
    bytemuck::allocation::try_zeroed_vec(count).map_err(|()| NoRoom { bytes })
}
