//! Rows of a table by index.

use backend_api::BackendResult;
use backend_api::desc::GatherDesc;

use crate::memory::Memory;
use crate::parallel::Cores;

/// Bytes in the share of one thread.
const GRAIN: usize = 1 << 16;

/// `output[i, :] = table[indices[i], :]`, zeros for an index outside the table.
pub(crate) fn gather(memory: &Memory, op: &'static str, desc: &GatherDesc) -> BackendResult<()> {
    let operands = desc.operands(op)?;
    memory.access(op, &operands, |[table, indices, _], output| {
        let table: &[u8] = table.elements();
        let indices: &[u32] = indices.elements();
        // Both products were checked: the output isn't empty here.
        let row_bytes = desc.columns * desc.dtype.size();
        Cores::run(output.len() / 4, |cores| {
            cores.chunks(output, row_bytes, GRAIN, &|first, chunk: &mut [u8]| {
                let rows = chunk.chunks_exact_mut(row_bytes);
                for (row, &index) in rows.zip(&indices[first / row_bytes..]) {
                    // A negative index is a large one.
                    let source = usize::try_from(index).ok().filter(|&index| index < desc.rows);
                    match source {
                        Some(index) => row.copy_from_slice(&table[index * row_bytes..][..row_bytes]),
                        None => row.fill(0),
                    }
                }
            });
        });
    })
}
