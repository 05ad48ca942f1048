//! GGUF's formats compared with two other implementations, bit by bit: 10,000 random blocks of each with the
//! package `gguf` 0.19.0, whose checksums `tests/quant/reference.py` prints, and weights quantised by candle.

use std::iter;

use backend_api::quant::{QuantFormat, dequantize, quantize, repack, unpack};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use conformance::Rng;

const BLOCKS: usize = 10_000;

/// Each format, where the f16 scales of its blocks are, and the checksum of their weights.
const DEQUANTISED: [(QuantFormat, &[usize], u64); 13] = [
    (QuantFormat::Q8_0, &[0], 0xca8a_926c_9a26_7140),
    (QuantFormat::Q4_0, &[0], 0x4551_0934_341f_c000),
    (QuantFormat::Q4_1, &[0, 2], 0xd5e9_d1f2_3117_6f38),
    (QuantFormat::Q5_0, &[0], 0x7fa7_f730_41fa_0e00),
    (QuantFormat::Q5_1, &[0, 2], 0xcf3c_a15c_9a44_0f33),
    (QuantFormat::IQ4_NL, &[0], 0xc931_6727_8e5c_2ac0),
    (QuantFormat::IQ4_XS, &[0], 0x12bd_68a1_e501_880c),
    (QuantFormat::Mxfp4, &[], 0x633e_4026_e6e0_0000),
    (QuantFormat::Q2_K, &[80, 82], 0x963e_99ce_fd82_bd74),
    (QuantFormat::Q3_K, &[108], 0x09a2_113f_0113_0a80),
    (QuantFormat::Q4_K, &[0, 2], 0xac14_00bc_81bc_4dcd),
    (QuantFormat::Q5_K, &[0, 2], 0x0c7e_f1b4_3c66_c00f),
    (QuantFormat::Q6_K, &[208], 0x42e7_34f2_4afd_2a62),
];

/// The checksum of the blocks that weights become.
const QUANTISED: [(QuantFormat, u64); 3] = [
    (QuantFormat::Q8_0, 0x0000_0d37_1c5f_4901),
    (QuantFormat::Q4_0, 0x0000_03f4_d753_26b7),
    (QuantFormat::Mxfp4, 0x0000_03fc_afe7_a6c7),
];

/// The numbers of SplitMix64 from the seed 0, which `quant/reference.py` draws, too.
fn noise() -> impl Iterator<Item = u64> {
    let mut rng = Rng::new(0);
    iter::repeat_with(move || rng.next_u64())
}

/// The sum of each number times an odd number that tells its place.
fn checksum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.enumerate().fold(0, |sum, (i, x)| sum.wrapping_add(x.wrapping_mul(2 * i as u64 + 1)))
}

/// Random weights, which are exact in f32.
fn weights(count: usize) -> Vec<f32> {
    noise().take(count).map(|x| ((x >> 40) as i64 - (1 << 23)) as f32 / (1 << 20) as f32).collect()
}

/// The weights of blocks, by way of the planes.
fn dequantised(format: QuantFormat, columns: usize, blocks: &[u8]) -> Vec<f32> {
    let per_row = columns / format.block_elements() * format.block_bytes().unwrap();
    let rows = blocks.len() / per_row;
    let mut planes = vec![0xA5; format.bytes(rows, columns).unwrap()];
    repack(format, rows, columns, blocks, &mut planes).unwrap();
    let mut weights = vec![f32::NAN; rows * columns];
    dequantize(format, rows, columns, &planes, &mut weights).unwrap();
    let mut back = vec![0; blocks.len()];
    unpack(format, rows, columns, &planes, &mut back).unwrap();
    assert!(back == blocks, "{format}: unpacked blocks differ");
    weights
}

#[test]
fn random_blocks_have_the_weights_that_gguf_gives_them() {
    for (format, scales, expected) in DEQUANTISED {
        let size = format.block_bytes().unwrap();
        let mut blocks: Vec<u8> = noise().flat_map(u64::to_le_bytes).take(BLOCKS * size).collect();
        for block in blocks.chunks_exact_mut(size) {
            // Finite scales: the highest bit of their exponents is 0.
            scales.iter().for_each(|&at| block[at + 1] &= 0xBF);
        }
        // Rows of an odd number of blocks, so that of small ones the last unit has padding.
        let weights = dequantised(format, 25 * format.block_elements(), &blocks);
        let sum = checksum(weights.iter().map(|x| u64::from(x.to_bits())));
        assert_eq!(sum, expected, "{format}: {sum:#018x}");
    }
}

#[test]
fn weights_are_quantised_as_gguf_does() {
    let weights = weights(BLOCKS * 32);
    for (format, expected) in QUANTISED {
        let mut blocks = vec![0; BLOCKS * format.block_bytes().unwrap()];
        quantize(format, BLOCKS / 4, 128, &weights, &mut blocks).unwrap();
        let sum = checksum(blocks.iter().map(|&byte| u64::from(byte)));
        assert_eq!(sum, expected, "{format}: {sum:#018x}");
    }
}

#[test]
fn what_candle_quantises_has_the_weights_that_candle_gives_it() {
    let formats = [
        (QuantFormat::Q8_0, GgmlDType::Q8_0),
        (QuantFormat::Q4_0, GgmlDType::Q4_0),
        (QuantFormat::Q4_1, GgmlDType::Q4_1),
        (QuantFormat::Q5_0, GgmlDType::Q5_0),
        (QuantFormat::Q5_1, GgmlDType::Q5_1),
        (QuantFormat::Q2_K, GgmlDType::Q2K),
        (QuantFormat::Q3_K, GgmlDType::Q3K),
        (QuantFormat::Q4_K, GgmlDType::Q4K),
        (QuantFormat::Q5_K, GgmlDType::Q5K),
        (QuantFormat::Q6_K, GgmlDType::Q6K),
    ];
    let (rows, columns) = (40, 768);
    let weights = Tensor::from_vec(weights(rows * columns), (rows, columns), &Device::Cpu).unwrap();
    for (format, dtype) in formats {
        let tensor = QTensor::quantize(&weights, dtype).unwrap();
        let expected: Vec<f32> =
            tensor.dequantize(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap();
        let got = dequantised(format, columns, &tensor.data().unwrap());
        let bits = |weights: &[f32]| weights.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(bits(&got) == bits(&expected), "{format}: weights differ from candle's");
    }
}
