//! Elements as bytes.

use backend_api::DType;
use backend_api::support::numbers;
use half::f16;

/// What outputs are filled with: a quiet NaN with a payload that no operation makes by chance.
const NAN_F32: u32 = 0x7fd5_a5c3;
/// The fill pattern of f16: a NaN.
const NAN_F16: u16 = 0x7ed5;

/// The bytes of `values`, which are numbers of `dtype` or NaN for the fill pattern.
pub(crate) fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    let word = |bits: u32| bits.to_le_bytes().to_vec();
    let encode_one = |&value: &f64| match dtype {
        DType::F16 if value.is_nan() => NAN_F16.to_le_bytes().to_vec(),
        DType::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
        _ if value.is_nan() => word(NAN_F32),
        DType::F32 => word((value as f32).to_bits()),
        DType::I32 => word(value as i32 as u32),
        DType::U32 => word(value as u32),
        other => unimplemented!("a test of {other}"),
    };
    values.iter().flat_map(encode_one).collect()
}

/// The elements of `bytes`.
pub(crate) fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    numbers(dtype, bytes).collect()
}
