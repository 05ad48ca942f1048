//! Matrices in blocks on their way to planes on the device.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use backend_api::MaybeSync;
use backend_api::owned::Buffer;
use backend_api::quant::{self, QuantLayout};

use crate::Result;
use crate::gguf::Tensor;

/// Bytes of blocks that a thread repacks at a time, which stay in its caches.
const PIECE_BYTES: usize = 512 << 10;

/// The rows of a matrix in blocks, as the file has them.
pub(super) struct Rows<'a> {
    count: usize,
    bytes: &'a [u8],
}

impl<'a> Rows<'a> {
    /// The rows of all matrices of a tensor, whose last extent is a row's.
    pub(super) fn of(tensor: &Tensor<'a>) -> Self {
        let count = tensor.shape.split_last().map_or(0, |(_, rows)| rows.iter().product());
        Self { count, bytes: tensor.data }
    }

    /// A row; empty if there is no such row.
    pub(super) fn row(&self, row: usize) -> &'a [u8] {
        let each = self.bytes.len() / self.count.max(1);
        self.bytes.get(row * each..(row + 1) * each).unwrap_or_default()
    }

    /// A row of matrices that lie one after the other.
    pub(super) fn of_stack(stack: &[Self], mut row: usize) -> &'a [u8] {
        for part in stack {
            if row < part.count {
                return part.row(row);
            }
            row -= part.count;
        }
        &[]
    }
}

/// Uploads a matrix of `rows` rows, of which row `i` consists of the blocks `row(i)`. As many threads as the host has repack some rows
/// each, so that the host never has the whole matrix in planes.
pub(super) fn fill<'a>(
    buffer: &Buffer,
    layout: &QuantLayout,
    rows: usize,
    row: &(impl Fn(usize) -> &'a [u8] + MaybeSync),
) -> Result<()> {
    let each = (PIECE_BYTES / row(0).len().max(1)).max(1);
    let next = AtomicUsize::new(0);
    in_threads(rows.div_ceil(each), &|| {
        let mut piece = Piece { blocks: Vec::new(), planes: Vec::new() };
        loop {
            let first = next.fetch_add(1, Ordering::Relaxed).saturating_mul(each);
            if first >= rows {
                return Ok(());
            }
            let some = first..rows.min(first + each);
            // After an error, no thread begins another piece.
            piece.upload(buffer, layout, some, row).inspect_err(|_| next.store(rows, Ordering::Relaxed))?;
        }
    })
}

/// A thread's memory for some rows.
struct Piece {
    blocks: Vec<u8>,
    planes: Vec<u8>,
}

impl Piece {
    /// Uploads some rows of the matrix that `buffer` holds.
    fn upload<'a>(
        &mut self,
        buffer: &Buffer,
        whole: &QuantLayout,
        rows: Range<usize>,
        row: &impl Fn(usize) -> &'a [u8],
    ) -> Result<()> {
        let Self { blocks, planes } = self;
        let QuantLayout { format, columns, .. } = *whole;
        blocks.clear();
        rows.clone().for_each(|i| blocks.extend_from_slice(row(i)));
        let part = QuantLayout::new("load", format, rows.len(), columns)?;
        planes.resize(part.bytes, 0);
        quant::repack(format, rows.len(), columns, blocks, planes)?;
        let of = |layout: &QuantLayout| [layout.quants, layout.high, layout.scales, layout.extra];
        for (from, to) in of(&part).into_iter().zip(of(whole)).filter(|(from, _)| from.row_bytes > 0) {
            let bytes = rows.len() * from.row_bytes;
            let place = buffer.view(to.offset + rows.start * to.row_bytes, bytes)?;
            place.upload(&planes[from.offset..from.offset + bytes])?;
        }
        Ok(())
    }
}

/// Calls `work` on as many threads as the host has, at most `most` and at least this one.
#[cfg(not(target_family = "wasm"))]
fn in_threads(most: usize, work: &(impl Fn() -> Result<()> + Sync)) -> Result<()> {
    use std::thread::{self, Builder};

    let threads = thread::available_parallelism().map_or(1, usize::from).min(most);
    thread::scope(|scope| {
        // A thread that the system refuses leaves its part to the others.
        let others: Vec<_> =
            (1..threads).map_while(|_| Builder::new().spawn_scoped(scope, work).ok()).collect();
        let own = work();
        let joined = others
            .into_iter()
            .map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.fold(own, Result::and)
    })
}

/// Calls `work` on this thread, as a page has no other.
#[cfg(target_family = "wasm")]
fn in_threads(_most: usize, work: &impl Fn() -> Result<()>) -> Result<()> {
    work()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use backend_api::ComputeBackend;
    use backend_api::quant::QuantFormat;
    use backend_cpu::CpuBackend;

    use super::*;

    /// Pieces of rows, of which the last is shorter, make what one piece makes.
    #[test]
    fn pieces_make_the_planes_of_the_whole() {
        let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
        for format in QuantFormat::GGUF {
            let columns = 1280;
            let row_bytes = columns / format.block_elements() * format.block_bytes().unwrap();
            let rows = 2 * (PIECE_BYTES / row_bytes) + 7;
            let blocks: Vec<u8> = (0..rows * row_bytes).map(|i| (i * 31 % 251) as u8).collect();
            let layout = QuantLayout::new("load", format, rows, columns).unwrap();
            let buffer = Buffer::new::<u8>(&backend, &[layout.bytes]).unwrap();
            fill(&buffer, &layout, rows, &|i| &blocks[i * row_bytes..][..row_bytes]).unwrap();
            let mut back = vec![0; blocks.len()];
            quant::unpack(format, rows, columns, &buffer.to_vec::<u8>().unwrap(), &mut back).unwrap();
            assert!(back == blocks, "{format}");
        }
    }

    #[test]
    fn an_error_ends_all_threads() {
        let backend: Arc<dyn ComputeBackend> = Arc::new(CpuBackend::new());
        let (rows, columns) = (40_000, 4096);
        let row = vec![0; columns / 32 * 34 + 1];
        let asked = AtomicUsize::new(0);
        let layout = QuantLayout::new("load", QuantFormat::Q8_0, rows, columns).unwrap();
        let buffer = Buffer::new::<u8>(&backend, &[layout.bytes]).unwrap();
        let filled = fill(&buffer, &layout, rows, &|_| {
            asked.fetch_add(1, Ordering::Relaxed);
            &row[..]
        });
        assert!(filled.is_err());
        // Each had one piece.
        assert!(asked.into_inner() < rows / 2);
    }
}
