//! Which operand it was of which a launch can't bind enough.

use backend_api::support::Operand;
use backend_api::{BackendError, Command};

use crate::ops::op_context::OpContext;
use crate::recorder::UNNAMED;

/// What a limit says of an operand, by the names that the contract has for operands.
macro_rules! bytes_of {
    ($arg:expr; $($name:literal)*) => {
        match $arg {
            $($name => Some(concat!("bytes of ", $name)),)*
            _ => None,
        }
    };
}

fn bytes_of(arg: &str) -> Option<&'static str> {
    bytes_of!(arg; "a" "b" "bias" "block_table" "c" "cache" "condition" "cos" "filter" "grad_filter" "grad_input"
        "grad_output" "grad_weight" "indices" "input" "k" "key norm" "key_lengths" "logits" "lse" "mask" "mean" "norm" "o"
        "offset_ptr" "output" "positions" "q" "qkv" "query norm" "residual" "sin" "sinks" "source" "sum" "table" "tokens" "v"
        "values" "variance" "weight" "weights" "window" "x" "y")
}

/// The error of a call, with the name of the operand that a launch couldn't bind, unless that was a copy of one or memory
/// between two launches.
pub(super) fn named(ctx: &OpContext, command: &Command<'_>, error: BackendError) -> BackendError {
    let BackendError::Limit { op, what: UNNAMED, requested, max } = error else { return error };
    let name = || {
        let window = ctx.take_refused()?;
        let is_shown = |operand: &Operand| match ctx.resolve(op, std::array::from_ref(operand)) {
            Ok([Some(slice)]) => slice.block.id() == window.block.id() && window.begins_in(&slice),
            _ => false,
        };
        bytes_of(command.operands(op).ok()?.iter().find(|&operand| is_shown(operand))?.arg)
    };
    BackendError::Limit { op, what: name().unwrap_or(UNNAMED), requested, max }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operands_have_their_names() {
        assert_eq!(
            ["input", "qkv", "no operand"].map(bytes_of),
            [Some("bytes of input"), Some("bytes of qkv"), None]
        );
    }
}
