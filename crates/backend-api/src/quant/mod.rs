//! Quantised matrices: formats, their layout in device memory, and conversions on the host.
//!
//! A quantised matrix ([`QuantMatrix`](crate::desc::QuantMatrix)) has `rows` rows of `columns` weights, as a
//! linear layer stores them: a product with it is `C = A · Bᵀ`. Its weights lie in planes, one after the
//! other in one allocation of [`QuantFormat::bytes`] bytes, made on the host by [`repack`] from the blocks of
//! a GGUF file or by [`MatMulNBits`], [`Gptq`] and [`Awq`], then copied to the device.
//!
//! # Layout
//! A row is padded to units of 128 weights. A unit has four blocks b = 0…3 of 32 weights, a block has four
//! words j = 0…3 of eight consecutive weights. Each plane starts at a multiple of 256 bytes and has its rows
//! one after the other; a row has its units in order. The allocation ends with its last plane, rounded up to
//! 16 bytes. All numbers are little-endian.
//!
//! Bytes that belong to no weight are 0. Weights of the padding have the value 0 (IQ4_NL's −0): their quants and scales are
//! 0, and in a group of U4 that begins before the row's end their quant is its zero point. Of GPTQ, which
//! knows the zero point 16, it is 15, so what multiplies the padding must be 0.
//!
//! | plane | formats | a row |
//! |---|---|---|
//! | quants | Q8_0 | 128 bytes a unit, eight `vec4<u32>`: vector 2j + h is the two u32 of word j of block 2h, then those of block 2h + 1; four consecutive i8 in a u32 |
//! | quants | Q2_K, Q3_K | the low two bits: 32 bytes a unit, two `vec4<u32>`: component b of vector h is words 2h and 2h + 1 of block b. Bits 0 to 7 have the weights 0, 2, 4, 6 of the first, bits 16 to 23 its weights 1, 3, 5, 7; the second is 8 bits above |
//! | quants | others | the low four bits: 64 bytes a unit, four `vec4<u32>`: component b of vector j is word j of block b, its nibbles from the lowest the weights 0, 2, 4, 6, 1, 3, 5, 7 |
//! | high bits | Q3_K, Q5_0, Q5_1, Q5_K | 16 bytes a unit: byte b of u32 j has the highest bit of the weights of word j of block b, weight i in bit i |
//! | high bits | Q6_K | 32 bytes a unit: half h' of u32 h of `vec2<u32>` j has bits 4 and 5 of word j of block 2h + h', weight i in bits 2i and 2i + 1 |
//! | scales | Q8_0, Q4_0, Q5_0, IQ4_NL | f16 d of each block: 8 bytes a unit |
//! | scales | Q4_1, Q5_1 | f16 d and f16 m of each block: 16 bytes a unit |
//! | scales | Mxfp4 | the E8M0 exponent e of each block: 4 bytes a unit |
//! | scales | Q4_K, Q5_K | for each 256 weights the 16 bytes of GGUF: f16 d, f16 dmin, twelve bytes of 6-bit scales and minima |
//! | scales | IQ4_XS | for each 256 weights the 8 bytes of GGUF: f16 d, then of each block's sc the upper two bits in 16 bits and the low four in 32, the first block's lowest |
//! | scales | Q2_K | for each 16 weights a byte, sc below m: 8 bytes a unit |
//! | scales | Q3_K | i8 sc − 32 for each 16 weights: 8 bytes a unit |
//! | scales | Q6_K | i8 sc for each 16 weights: 8 bytes a unit |
//! | scales | U4 | f16 of each group, those of padding too if the group is less than 128; an even number |
//! | extra | Q2_K | f16 d and f16 dmin for each 256 weights |
//! | extra | Q3_K, Q6_K | f16 d for each 256 weights; an even number |
//! | extra | U4 with zero points | u8 for each group; a multiple of four |
//!
//! So `(word >> 4p) & 0x000F000F` are the low quants of the weights 2p and 2p + 1 of a word of four bits.
//!
//! # Values
//! Q8_0 and Mxfp4 `d · q`, Q4_0 `d · (q − 8)`, Q5_0 `d · (q − 16)`, Q4_1 and Q5_1 `d · q + m`, Q2_K, Q4_K and Q5_K
//! `(d · sc) · q − dmin · m`, Q3_K `(d · (sc − 32)) · (q − 4)`, Q6_K `(d · sc) · (q − 32)`, U4 `s · (q − z)`. IQ4_NL is `d · v(q)` and
//! IQ4_XS `(d · (sc − 32)) · v(q)`, where v of 0 to 15 is −127, −104, −83, −65, −49, −35, −22, −10, 1, 13, 25, 38, 53, 69, 89, 113.
//! All products are exact in f32; adding or subtracting a minimum rounds once.
//!
//! A nibble of Mxfp4 is a number of E2M1: a sign, two bits of exponent, one of mantissa. From 0 to 7 it stands for q = 0,
//! 1, 2, 3, 4, 6, 8, 12, from 8 to 15 for the negative ones, and d is 2^(e − 128): a weight is E2M1's value q / 2 times the
//! scale 2^(e − 127). Every byte e has a value, which is ggml's. With 0 and 1, d is a subnormal f32, 2⁻¹²⁸ or 2⁻¹²⁷, which a
//! device may take for zero. With 255, OCP's NaN, it is 2¹²⁷. From 253 on, `d · q` may be above the largest f32, and is
//! infinite where a weight is a number by itself. No weight is NaN.
//!
//! Block formats: ggml's `ggml-common.h` and `ggml-quants.c`, and of Mxfp4 OCP's Microscaling Formats Specification 1.0.
//! 4-bit groups: the contributed operator `MatMulNBits` of ONNX Runtime, the checkpoints of GPTQ (Frantar and others, 2022)
//! and AWQ (Lin and others, 2023).

mod decode;
mod format;
mod gguf;
mod lanes;
mod layout;
mod planes;
mod quantize;
mod u4;
mod word;

pub use decode::dequantize;
pub use format::{QuantCode, QuantFormat, ScaleKind};
pub use gguf::{repack, unpack};
pub use lanes::QuantLanes;
pub use layout::{QuantLayout, QuantPlane, UNIT};
pub use planes::QuantRow;
pub use quantize::quantize;
pub use u4::{Awq, Gptq, GroupScales, MatMulNBits, to_matmul_nbits};
