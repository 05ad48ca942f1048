//! Copies between parts of tensors.

use backend_api::desc::{ConcatDesc, PadDesc, PermuteDesc, RepeatDesc, SliceDesc};
use backend_api::support::{Operand, Part};
use backend_api::{BackendResult, DType};

use crate::access::Input;
use crate::memory::Memory;
use crate::ops::copy::{convert_part, fill_loops};

/// `output = input` in another order of dimensions.
pub(crate) fn permute(memory: &Memory, op: &'static str, desc: &PermuteDesc<'_>) -> BackendResult<()> {
    let (operands, part) = desc.operands(op)?;
    copy_part(memory, op, &operands, [desc.input.dtype, desc.output.dtype], part)
}

/// `output` = a box of `input`.
pub(crate) fn slice(memory: &Memory, op: &'static str, desc: &SliceDesc<'_>) -> BackendResult<()> {
    let (operands, part) = desc.operands(op)?;
    copy_part(memory, op, &operands, [desc.input.dtype, desc.output.dtype], part)
}

/// `output` = `input` again and again.
pub(crate) fn repeat(memory: &Memory, op: &'static str, desc: &RepeatDesc<'_>) -> BackendResult<()> {
    let (operands, part) = desc.operands(op)?;
    copy_part(memory, op, &operands, [desc.input.dtype, desc.output.dtype], part)
}

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
    for (input, (operands, part)) in desc.inputs.iter().zip(parts) {
        copy_part(memory, op, &operands, [input.dtype, desc.output.dtype], part)?;
    }
    Ok(())
}

fn copy_part(
    memory: &Memory,
    op: &'static str,
    operands: &[Operand; 2],
    types: [DType; 2],
    part: Part,
) -> BackendResult<()> {
    memory.access(op, operands, |[input, _], output| convert_into(input, output, types, part))
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
