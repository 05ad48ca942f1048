//! Files that are read piece by piece.

use std::future::Future;
use std::io;

/// Bytes of a file that needn't fit into memory, such as a `Blob` of a page.
pub trait Source {
    /// Bytes of the file.
    fn size(&self) -> u64;

    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// Whatever keeps the file from being read; [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) beyond its end.
    fn read(&self, offset: u64, into: &mut [u8]) -> impl Future<Output = io::Result<()>>;
}

impl Source for [u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    async fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let rest = usize::try_from(offset).ok().and_then(|start| self.get(start..));
        let bytes = rest.and_then(|rest| rest.get(..into.len())).ok_or(io::ErrorKind::UnexpectedEof)?;
        into.copy_from_slice(bytes);
        Ok(())
    }
}
