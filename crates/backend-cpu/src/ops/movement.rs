//! Copies between parts of tensors.

use backend_api::desc::{ConcatDesc, PadDesc, TensorDesc};
use backend_api::support::{Operand, Part};
use backend_api::{BackendResult, DType};

use crate::access::Input;
use crate::memory::Memory;
use crate::ops::copy::{convert_part, fill_loops};

/// `output` = `input` with a value around it.
pub(crate) fn pad(memory: &Memory, op: &'static str, desc: &PadDesc<'_>) -> BackendResult<()> {
    let (operands, part, whole) = desc.operands(op)?;
    memory.access(op, &operands, |[input, _], output| {
        fill_loops(whole, desc.output.dtype, desc.value, output);
        convert_into(input, output, [desc.input.dtype, desc.output.dtype], part);
    })
}

/// `output` = the inputs one after the other.
pub(crate) fn concat(memory: &Memory, op: &'static str, desc: &ConcatDesc<'_>) -> BackendResult<()> {
    let parts = desc.operands(op)?;
    for (operands, _) in &parts {
        memory.check(op, operands)?;
    }
    desc.inputs
        .iter()
        .zip(parts)
        .try_for_each(|(input, part)| moved(memory, op, Ok(part), [*input, desc.output]))
}

/// A part of `output` = a part of `input`, as the descriptor says: all that permute, slice and repeat do.
pub(crate) fn moved(
    memory: &Memory,
    op: &'static str,
    checked: BackendResult<([Operand; 2], Part)>,
    [from, to]: [TensorDesc<'_>; 2],
) -> BackendResult<()> {
    let (operands, part) = checked?;
    memory
        .access(op, &operands, |[input, _], output| convert_into(input, output, [from.dtype, to.dtype], part))
}

fn convert_into(input: Input<'_>, output: &mut [u8], types: [DType; 2], part: Part) {
    let elements: usize = part.loops.iter().map(|&(extent, _)| extent).product();
    if elements == 0 {
        return;
    }
    let [from, to] = [0, 1].map(|t| part.offsets[t] * types[t].size());
    let bytes: &[u8] = input.elements();
    convert_part(part.loops, types, Input::Bytes(&bytes[from..]), &mut output[to..]);
}
