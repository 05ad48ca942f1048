//! The contents of matrices, which follow their allocation.

use std::fmt;

use backend_api::owned::Buffer;

use crate::Result;

/// What a model's matrices lack, from [`Model::allocate`](crate::Model::allocate): their contents, which are in the file. Until it has
/// [run](Self::run), they hold arbitrary numbers, so that passes through the model mean nothing, though what they need can be planned:
/// [`Session::warm_up_async`](crate::Session::warm_up_async) compiles kernels meanwhile, on another thread.
#[must_use = "the model's matrices hold arbitrary numbers before"]
pub struct Filling<'a> {
    parts: Vec<Part<'a>>,
    done: usize,
    all: usize,
}

struct Part<'a> {
    bytes: usize,
    fill: Box<dyn FnOnce() -> Result<()> + 'a>,
}

impl<'a> Filling<'a> {
    /// Of a file with `all` bytes of tensors.
    pub(super) const fn new(all: usize) -> Self {
        Self { parts: Vec::new(), done: 0, all }
    }

    /// Notes tensors that are on the device already, or not needed there.
    pub(super) const fn note_done(&mut self, bytes: usize) {
        self.done = self.done.saturating_add(bytes);
    }

    /// Has a buffer filled from `bytes` of the file.
    pub(super) fn add(
        &mut self,
        buffer: &Buffer,
        bytes: usize,
        fill: impl FnOnce(&Buffer) -> Result<()> + 'a,
    ) -> Result<()> {
        let buffer = buffer.view(0, buffer.bytes())?;
        self.parts.push(Part { bytes, fill: Box::new(move || fill(&buffer)) });
        Ok(())
    }

    /// Uploads the matrices, in the order of the layers. `progress` hears of the bytes of the file's tensors that are uploaded, and of
    /// all.
    ///
    /// # Errors
    /// [`Error::Backend`](crate::Error::Backend).
    pub fn run(self, mut progress: impl FnMut(usize, usize)) -> Result<()> {
        let Self { parts, mut done, all } = self;
        for Part { bytes, fill } in parts {
            fill()?;
            done = done.saturating_add(bytes);
            progress(done.min(all), all);
        }
        // With what isn't needed.
        progress(all, all);
        Ok(())
    }
}

impl fmt::Debug for Filling<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filling").field("done", &self.done).field("all", &self.all).finish_non_exhaustive()
    }
}
