//! What a call needs to bind at once, of operations that divide their operands into slices, rows and images.

use backend_api::{Command, DType};

use super::Buffer;
use crate::BINDING;

/// Bytes that a binding may begin before an operand and end behind it.
const AROUND: usize = 256 + 16;

/// Whether a device may refuse the call: what it doesn't divide may pass a binding.
pub(super) fn may_be_refused(command: &Command<'_>, buffers: &[Buffer]) -> bool {
    let bytes = match command {
        Command::LayerNorm(d) => d.columns * d.dtype.size().max(d.weight_dtype.size()),
        Command::NormBackward(d) => d.columns * d.dtype.size(),
        Command::SoftmaxBackward(d) => d.length * d.inner * d.dtype.size(),
        Command::Gather(d) => d.columns * d.dtype.size().max(DType::U32.size()),
        Command::QuantGather(d) => d.table.columns * d.dtype.size(),
        Command::Dequantize(d) => d.output.ld * d.output.dtype.size(),
        // One image, the filters for NHWC, or all phases of a result: less than any operand, or more than these.
        Command::ConvTranspose(_) | Command::ConvBackwardData(_) => {
            2 * buffers.iter().map(|buffer| buffer.bytes.len()).max().unwrap_or(0)
        }
        _ => 0,
    };
    bytes + AROUND > BINDING
}
