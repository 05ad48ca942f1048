//! The memory that operations on quantised matrices touch.

use backend_api::desc::{
    AttentionDesc, AttentionShape, DequantizeDesc, ExpertMatmulDesc, HeadLayout, Matrix, QuantGatherDesc,
    QuantMatmulDesc, QuantMatrix, QuantizeRowsDesc, RmsNorm,
};
use backend_api::kv::KvFormat;
use backend_api::quant::QuantFormat;
use backend_api::support::Operand;
use backend_api::{DType, Gate};

const FORMAT: QuantFormat = QuantFormat::Q4_0;

fn matrix(rows: usize, columns: usize) -> QuantMatrix {
    QuantMatrix::new(1, FORMAT, rows, columns)
}

fn bytes(operands: &[Operand]) -> Vec<usize> {
    operands.iter().map(|operand| operand.bytes).collect()
}

#[test]
fn dequantised_rows_lie_a_leading_dimension_apart() {
    let touched = |rows, columns| {
        let desc = DequantizeDesc::new(matrix(rows, columns), Matrix::new(2, DType::F16, 70));
        bytes(&desc.operands("t").unwrap())
    };
    assert_eq!(touched(3, 64), [FORMAT.bytes(3, 64).unwrap(), (2 * 70 + 64) * 2]);
    assert_eq!((touched(0, 64), touched(3, 0)), (vec![0, 0], vec![0, 0]));
}

#[test]
fn a_lookup_reads_the_table_only_for_results() {
    let touched = |rows, columns, count| {
        let desc = QuantGatherDesc::new(DType::F32, matrix(rows, columns), 2, 3, count);
        bytes(&desc.operands("t").unwrap())
    };
    assert_eq!(touched(3, 64, 5), [FORMAT.bytes(3, 64).unwrap(), 5 * 4, 5 * 64 * 4]);
    assert_eq!((touched(3, 64, 0), touched(3, 0, 5)), (vec![0; 3], vec![0; 3]));
}

#[test]
fn a_product_without_results_reads_nothing() {
    let desc = |m, n, k| {
        let float = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
        QuantMatmulDesc::new(m, float(2, 70), matrix(n, k), float(3, 40))
            .with_bias(4)
            .with_residual(float(5, 50))
            .with_norm(RmsNorm::new(6, 1e-5))
    };
    let touched = |m, n, k| bytes(&desc(m, n, k).operands("t").unwrap());
    let [a, c, residual] = [70 + 64, 40 + 32, 50 + 32].map(|elements| 4 * elements);
    assert_eq!(touched(2, 32, 64), [a, FORMAT.bytes(32, 64).unwrap(), c, 4 * 32, residual, 4 * 64]);
    assert_eq!((touched(0, 32, 64), touched(2, 0, 64)), (vec![0; 6], vec![0; 6]));
    assert_eq!(desc(2, 32, 64).flops(), 2.0 * 2.0 * 32.0 * 64.0);
}

#[test]
fn a_layer_of_experts_touches_its_inputs_where_rows_have_experts() {
    let float = |ptr, ld| Matrix::new(ptr, DType::F32, ld);
    let desc =
        |rows, used| ExpertMatmulDesc::new([rows, used, 4], float(2, 70), matrix(4 * 6, 64), 6, float(3, 8));
    let stack = FORMAT.bytes(24, 64).unwrap();
    let plain = desc(3, 2);
    assert_eq!(bytes(&plain.operands("t").unwrap()), [4 * (140 + 64), stack, 24, 0, 0, 4 * (5 * 8 + 6)]);
    assert_eq!((plain.n(), plain.flops()), (6, 2.0 * 6.0 * 6.0 * 64.0));
    let summed = plain.with_gate(Gate::SwigluOai).with_bias(8).with_weights(7).with_per_expert(true);
    assert_eq!(
        bytes(&summed.operands("t").unwrap()),
        [4 * (5 * 70 + 64), stack, 24, 4 * 24, 24, 4 * (2 * 8 + 3)]
    );
    let none = desc(3, 0).with_bias(8).with_weights(7);
    assert_eq!(bytes(&none.operands("t").unwrap()), [0, 0, 0, 0, 0, 4 * (2 * 8 + 6)]);
    assert_eq!(
        (bytes(&desc(3, 0).operands("t").unwrap()), bytes(&desc(0, 2).operands("t").unwrap())),
        (vec![0; 6], vec![0; 6])
    );
}

#[test]
fn rows_of_a_cache_are_whole_blocks() {
    let desc = |count, rows| {
        QuantizeRowsDesc::new(Matrix::new(1, DType::F16, 70), 2, rows, 64, count)
            .with_offset(32)
            .with_stride(96)
    };
    let touched = |desc: QuantizeRowsDesc| {
        desc.operands("t").map(|operands| operands.map(|operand| (operand.offset, operand.bytes)))
    };
    // Rows that are written, or all that an index may name.
    assert_eq!(touched(desc(2, 5)).unwrap(), [(0, 2 * (70 + 64)), (36, (3 + 2) * 36), (0, 0)]);
    assert_eq!(touched(desc(2, 5).with_indices(3)).unwrap()[1..], [(36, (4 * 3 + 2) * 36), (0, 8)]);
    assert_eq!(touched(desc(0, 5)).unwrap().map(|(_, bytes)| bytes), [0; 3]);
    assert!(touched(desc(6, 5)).is_err() && touched(desc(6, 5).with_indices(3)).is_ok());
    assert!(touched(desc(2, 5).with_stride(32)).is_err());
}

#[test]
fn attention_reads_whole_blocks() {
    let shape = AttentionShape { batch: 2, heads: 4, seq_q: 1, seq_kv: 10, head_dim: 64 };
    // Keys and values of a token side by side.
    let keys = HeadLayout { offset: 0, batch: 16 * 256, head: 64, token: 256 };
    let desc = AttentionDesc::new(DType::F32, 1, 2, 2, 3, shape)
        .with_kv_heads(2)
        .with_kv_format(KvFormat::Q8_0)
        .with_k_layout(keys)
        .with_v_layout(HeadLayout { offset: 128, ..keys });
    let [_, k, v, ..] = desc.operands("t").unwrap();
    let last = (16 * 256 + 9 * 256 + 64 + 64) / 32 * 36;
    assert_eq!(
        [k, v].map(|operand| (operand.offset, operand.bytes, operand.align)),
        [(0, last, 4), (144, last, 4)]
    );
    let refused = |desc: AttentionDesc| desc.operands("t").is_err();
    assert!(refused(desc.with_k_layout(HeadLayout { token: 250, ..keys })));
    assert!(refused(desc.with_v_layout(HeadLayout { offset: 16, ..keys })));
    assert!(refused(desc.with_v_head_dim(48)));
}
