//! Copies between parts of tensors.

use backend_api::desc::{ConcatDesc, PadDesc, TensorDesc};
use backend_api::support::{Operand, Part};
use backend_api::{BackendResult, DType};

use crate::access::{Call, Input};
use crate::ops::copy::{convert_part, fill_loops};

/// `output` = `input` with a value around it.
pub(crate) fn pad(call: Call<'_>, desc: &PadDesc<'_>) -> BackendResult<()> {
    let (operands, part, whole) = desc.operands(call.op)?;
    call.access(&operands, |[input, _], output| {
        fill_loops(whole, desc.output.dtype, desc.value, output);
        convert_into(input, output, [desc.input.dtype, desc.output.dtype], part);
    })
}

/// `output` = the inputs one after the other.
pub(crate) fn concat(call: Call<'_>, desc: &ConcatDesc<'_>) -> BackendResult<()> {
    let parts = desc.operands(call.op)?;
    for (operands, _) in &parts {
        call.check(operands)?;
    }
    desc.inputs.iter().zip(parts).try_for_each(|(input, part)| moved(call, Ok(part), [*input, desc.output]))
}

/// A part of `output` = a part of `input`, as the descriptor says: all that permute, slice and repeat do.
pub(crate) fn moved(
    call: Call<'_>,
    checked: BackendResult<([Operand; 2], Part)>,
    [from, to]: [TensorDesc<'_>; 2],
) -> BackendResult<()> {
    let (operands, part) = checked?;
    call.access(&operands, |[input, _], output| convert_into(input, output, [from.dtype, to.dtype], part))
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
