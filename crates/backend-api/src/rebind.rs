//! Operations on other handles, and the memory that an operation touches.

use crate::command::for_each_operation;
use crate::desc::ConcatDesc;
use crate::desc::handles::Handles as _;
use crate::support::{Access, Operand, Part};
use crate::{BackendResult, Command};

/// Calls `$then` with a copy of a descriptor that names other handles.
macro_rules! rebound {
    // Its inputs are behind a reference.
    (Concat, $desc:ident, $map:ident, $then:ident) => {{
        let (mut inputs, mut output) = ($desc.inputs.to_vec(), $desc.output);
        inputs.iter_mut().for_each(|input| input.map_handles($map));
        output.map_handles($map);
        $then(Command::Concat(&ConcatDesc { inputs: &inputs, output, axis: $desc.axis }))
    }};
    ($variant:ident, $desc:ident, $map:ident, $then:ident) => {{
        let mut desc = *$desc;
        desc.map_handles($map);
        $then(Command::$variant(&desc))
    }};
}

macro_rules! command_memory {
    ($($(#[$meta:meta])* fn $method:ident($desc:ty) => $variant:ident($held:ty);)*) => {
        impl Command<'_> {
            /// Hands `then` this operation with `map` of each of its handles, for a backend that keeps others than
            /// its callers.
            ///
            /// A handle of which nothing is touched may be any number, and so may what `map` makes of it.
            pub fn with_handles<R>(
                self,
                map: &mut dyn FnMut(u64) -> u64,
                then: impl FnOnce(Command<'_>) -> R,
            ) -> R {
                match self {
                    $(Command::$variant(desc) => rebound!($variant, desc, map, then),)*
                    Command::Fill { dst, dtype, n, value } => {
                        then(Command::Fill { dst: map(dst), dtype, n, value })
                    }
                    Command::CopyBytes { dst, src, bytes } => {
                        then(Command::CopyBytes { dst: map(dst), src: map(src), bytes })
                    }
                }
            }

            /// The memory that the operation touches, after a check of its shapes; `op` is the name that errors
            /// carry.
            ///
            /// # Errors
            /// The errors of the descriptor's `operands`.
            pub fn operands(&self, op: &'static str) -> BackendResult<Vec<Operand>> {
                Ok(match *self {
                    $(Command::$variant(desc) => desc.operands(op)?.into_operands(),)*
                    Command::Fill { dst, dtype, n, .. } => {
                        vec![Operand::new(op, "dst", dst, dtype, n, Access::Write)?]
                    }
                    Command::CopyBytes { dst, src, bytes } => vec![
                        Operand::bytes("dst", dst, bytes, Access::Write),
                        Operand::bytes("src", src, bytes, Access::Read),
                    ],
                })
            }
        }
    };
}

for_each_operation!(command_memory);

/// What a descriptor's `operands` returns: the operands, and for strided tensors the loops over them.
trait IntoOperands {
    fn into_operands(self) -> Vec<Operand>;
}

impl<const N: usize> IntoOperands for [Operand; N] {
    fn into_operands(self) -> Vec<Operand> {
        self.to_vec()
    }
}

impl<const N: usize, L> IntoOperands for ([Operand; N], L) {
    fn into_operands(self) -> Vec<Operand> {
        self.0.to_vec()
    }
}

impl<const N: usize, P, L> IntoOperands for ([Operand; N], P, L) {
    fn into_operands(self) -> Vec<Operand> {
        self.0.to_vec()
    }
}

impl IntoOperands for Vec<([Operand; 2], Part)> {
    fn into_operands(self) -> Vec<Operand> {
        self.into_iter().flat_map(|(both, _)| both).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::desc::{
        AttentionDesc, AttentionMask, AttentionShape, BlockTable, LayerNormDesc, Matrix, PadDesc,
        QuantMatmulDesc, QuantMatrix, RmsNorm, RmsNormDesc, TensorDesc, WhereDesc,
    };
    use crate::quant::QuantFormat;

    /// The handles of a command's operands that touch memory, after adding 100 to each.
    fn moved(command: Command<'_>) -> Vec<u64> {
        let handles = |command: Command<'_>| -> Vec<u64> {
            let operands = command.operands("t").unwrap();
            operands.iter().filter(|operand| operand.bytes > 0).map(|operand| operand.ptr).collect()
        };
        let before = handles(command);
        let after = command.with_handles(&mut |ptr| ptr + 100, handles);
        assert_eq!(after, before.iter().map(|ptr| ptr + 100).collect::<Vec<_>>(), "{command:?}");
        after
    }

    #[test]
    fn every_handle_is_exchanged_the_optional_ones_too() {
        let shape = AttentionShape { batch: 2, heads: 1, seq_q: 3, seq_kv: 3, head_dim: 4 };
        let mask = AttentionMask { ptr: 5, batch_stride: 0, head_stride: 0, query_stride: 3 };
        let attention =
            AttentionDesc::new(DType::F32, 1, 2, 3, 4, shape).with_mask(mask).with_key_lengths(6).with_lse(7);
        assert_eq!(moved(Command::Attention(&attention)), [101, 102, 103, 104, 105, 106, 107]);
        let paged = attention.with_block_table(BlockTable::new(8, 1, 16, 1));
        assert_eq!(moved(Command::Attention(&paged)), [101, 102, 103, 104, 105, 106, 107, 108]);
        let norm = LayerNormDesc::new(DType::F32, 1, 2, 3, 4).with_weight(3).with_bias(4).with_residual(5);
        assert_eq!(moved(Command::LayerNorm(&norm.with_sum(6))).len(), 6);
        let norm = RmsNormDesc::new(DType::F32, 1, 2, 3, 4).with_weight(3).with_residual(4).with_sum(5);
        assert_eq!(moved(Command::RmsNorm(&norm)).len(), 5);
        let [a, c, residual] = [1, 3, 4].map(|ptr| Matrix::new(ptr, DType::F32, 64));
        let weights = QuantMatrix::new(2, QuantFormat::Q4_0, 64, 64);
        let product = QuantMatmulDesc::new(2, a, weights, c)
            .with_residual(residual)
            .with_bias(5)
            .with_norm(RmsNorm::new(6, 1e-5));
        assert_eq!(moved(Command::QuantMatmul(&product)).len(), 6);
        let row = |ptr| TensorDesc::packed(ptr, DType::F32, &[4]);
        let condition = TensorDesc::packed(1, DType::U32, &[4]);
        assert_eq!(moved(Command::Where(&WhereDesc::new(condition, row(2), 0.5, row(3)))), [101, 102, 103]);
        let inputs = [row(1), row(2)];
        let output = TensorDesc::packed(3, DType::F32, &[8]);
        assert_eq!(
            moved(Command::Concat(&ConcatDesc { inputs: &inputs, output, axis: 0 })),
            [101, 103, 102, 103]
        );
        let padded = TensorDesc::packed(2, DType::F32, &[7]);
        assert_eq!(moved(Command::Pad(&PadDesc::new(row(1), padded, &[1], 0.0))), [101, 102]);
        assert_eq!(moved(Command::CopyBytes { dst: 1, src: 2, bytes: 4 }), [101, 102]);
    }
}
