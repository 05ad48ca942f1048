//! Quantised weights: planes against a reading of GGUF's blocks weight by weight, and the other layouts.

mod groups;
mod mxfp4;

use backend_api::ErrorKind;
use backend_api::quant::{
    Awq, Gptq, GroupScales, MatMulNBits, QuantFormat, QuantLayout, UNIT, dequantize, quantize, repack, unpack,
};
use half::f16;

/// Numbers without a pattern (xorshift).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| (self.next() >> 32) as u8).collect()
    }
}

fn half_at(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

/// The values of ggml's `kvalues_iq4nl`.
const IQ4: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0, 89.0, 113.0,
];

/// What makes weight `i` of a GGUF block, as ggml's documentation of the formats has it: scale, quant, zero point
/// and minimum.
fn terms(format: QuantFormat, block: &[u8], i: usize) -> [f32; 4] {
    let scale_and_min = |t: usize| {
        let s = &block[4..16];
        let (sc, m) = if t < 4 {
            (s[t] & 63, s[t + 4] & 63)
        } else {
            (s[t + 4] & 15 | (s[t - 4] >> 6) << 4, s[t + 4] >> 4 | (s[t] >> 6) << 4)
        };
        (half_at(block, 0) * f32::from(sc), half_at(block, 2) * f32::from(m))
    };
    match format {
        QuantFormat::Q8_0 => [half_at(block, 0), f32::from(block[2 + i] as i8), 0.0, 0.0],
        QuantFormat::Q4_0 => {
            let q = block[2 + i % 16] >> (4 * (i / 16)) & 15;
            [half_at(block, 0), f32::from(q), 8.0, 0.0]
        }
        QuantFormat::Q4_1 => {
            let q = block[4 + i % 16] >> (4 * (i / 16)) & 15;
            [half_at(block, 0), f32::from(q), 0.0, -half_at(block, 2)]
        }
        QuantFormat::Q5_0 | QuantFormat::Q5_1 => {
            let (at, zero) = if format == QuantFormat::Q5_0 { (2, 16.0) } else { (4, 0.0) };
            let fifth = u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]) >> i & 1;
            let q = block[at + 4 + i % 16] >> (4 * (i / 16)) & 15 | (fifth as u8) << 4;
            let min = if format == QuantFormat::Q5_0 { 0.0 } else { -half_at(block, 2) };
            [half_at(block, 0), f32::from(q), zero, min]
        }
        QuantFormat::IQ4_NL => {
            let q = block[2 + i % 16] >> (4 * (i / 16)) & 15;
            [half_at(block, 0), IQ4[usize::from(q)], 0.0, 0.0]
        }
        QuantFormat::IQ4_XS => {
            let t = i / 32;
            let low = block[4 + t / 2] >> (4 * (t % 2)) & 15;
            let above = u16::from_le_bytes([block[2], block[3]]) >> (2 * t) & 3;
            let sc = f32::from(low) + 16.0 * f32::from(above) - 32.0;
            let q = block[8 + 16 * t + i % 16] >> (4 * (i / 16 % 2)) & 15;
            [half_at(block, 0) * sc, IQ4[usize::from(q)], 0.0, 0.0]
        }
        QuantFormat::Q2_K => {
            let (sc, m) = (block[i / 16] & 15, block[i / 16] >> 4);
            let q = block[16 + i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3;
            [half_at(block, 80) * f32::from(sc), f32::from(q), 0.0, half_at(block, 82) * f32::from(m)]
        }
        QuantFormat::Q3_K => {
            let (s, t) = (&block[96..108], i / 16);
            let low = if t < 8 { s[t] & 15 } else { s[t - 8] >> 4 };
            let sc = f32::from(low | (s[8 + t % 4] >> (2 * (t / 4)) & 3) << 4) - 32.0;
            let third = block[i % 32] >> (i / 32) & 1;
            let q = block[32 + i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3 | third << 2;
            [half_at(block, 108) * sc, f32::from(q), 4.0, 0.0]
        }
        QuantFormat::Mxfp4 => {
            let code = block[1 + i % 16] >> (4 * (i / 16)) & 15;
            let doubled = [0, 1, 2, 3, 4, 6, 8, 12][usize::from(code & 7)];
            let doubled = if code < 8 { doubled } else { -doubled };
            // Powers of f64 have no subnormal ones among these.
            let scale = 2f64.powi(i32::from(block[0]) - 128) as f32;
            [scale, doubled as f32, 0.0, 0.0]
        }
        QuantFormat::Q4_K => {
            let (d, min) = scale_and_min(i / 32);
            let q = block[16 + i / 64 * 32 + i % 32] >> (4 * (i / 32 % 2)) & 15;
            [d, f32::from(q), 0.0, min]
        }
        QuantFormat::Q5_K => {
            let (d, min) = scale_and_min(i / 32);
            let q = block[48 + i / 64 * 32 + i % 32] >> (4 * (i / 32 % 2)) & 15;
            let fifth = block[16 + i % 32] >> (i / 32) & 1;
            [d, f32::from(q | fifth << 4), 0.0, min]
        }
        QuantFormat::Q6_K => {
            let (half, group, j) = (i / 128, i / 32 % 4, i % 32);
            let low = block[64 * half + 32 * (group % 2) + j] >> (4 * (group / 2)) & 15;
            let above = block[128 + 32 * half + j] >> (2 * group) & 3;
            let scale = half_at(block, 208) * f32::from(block[192 + i / 16] as i8);
            [scale, f32::from(low | above << 4), 32.0, 0.0]
        }
        _ => unreachable!("a format of GGUF"),
    }
}

/// Weight `i` of a GGUF block.
fn weight(format: QuantFormat, block: &[u8], i: usize) -> f32 {
    let [scale, quant, zero, min] = terms(format, block, i);
    scale * (quant - zero) - min
}

fn same(got: f32, want: f32) -> bool {
    got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan()
}

#[test]
fn planes_hold_the_weights_of_any_blocks() {
    let mut noise = Noise(1);
    for format in QuantFormat::GGUF {
        let (elements, size) = (format.block_elements(), format.block_bytes().unwrap());
        for (rows, per_row) in [(1, 1), (3, 5), (2, 4), (7, 2)] {
            let columns = per_row * elements;
            let blocks = noise.bytes(rows * per_row * size);
            // What a reused buffer holds must not stay.
            let mut planes = vec![0xA5; format.bytes(rows, columns).unwrap()];
            repack(format, rows, columns, &blocks, &mut planes).unwrap();
            let mut weights = vec![f32::NAN; rows * columns];
            dequantize(format, rows, columns, &planes, &mut weights).unwrap();
            for (i, &got) in weights.iter().enumerate() {
                let want = weight(format, &blocks[i / elements * size..][..size], i % elements);
                assert!(same(got, want), "{format}, {rows}×{columns}, weight {i}: {got}, not {want}");
            }
            let mut back = vec![0x5A; blocks.len()];
            unpack(format, rows, columns, &planes, &mut back).unwrap();
            assert_eq!(back, blocks, "{format}, {rows}×{columns}");
        }
    }
}

#[test]
fn magnitudes_are_sums_of_the_terms_without_their_signs() {
    let mut noise = Noise(6);
    for format in QuantFormat::GGUF {
        let (elements, size) = (format.block_elements(), format.block_bytes().unwrap());
        let columns = 3 * elements;
        let blocks = noise.bytes(3 * size);
        let layout = QuantLayout::new("t", format, 1, columns).unwrap();
        let mut planes = vec![0; layout.bytes];
        repack(format, 1, columns, &blocks, &mut planes).unwrap();
        let row = layout.row(&planes, 0).unwrap();
        let mut unit = [f32::NAN; 128];
        for i in 0..columns {
            if i % unit.len() == 0 {
                row.magnitudes(i / unit.len(), &mut unit);
            }
            let [scale, quant, zero, min] = terms(format, &blocks[i / elements * size..], i % elements);
            let (got, want) = (unit[i % unit.len()], scale.abs() * (quant.abs() + zero) + min.abs());
            assert!(same(got, want), "{format}, weight {i}: {got}, not {want}");
        }
    }
}

#[test]
fn lanes_of_quants_and_their_scales_make_up_the_weights() {
    let mut magnitudes = [0.0; UNIT];
    let mut noise = Noise(0x1E5);
    let u4 = |group, zero_points| QuantFormat::U4 { group, zero_points };
    for format in QuantFormat::GGUF.into_iter().chain([u4(16, true), u4(32, false), u4(256, true)]) {
        let layout = QuantLayout::new("test", format, 2, 512).unwrap();
        let planes = noise.bytes(layout.bytes);
        let row = layout.row(&planes, 1).unwrap();
        for unit in 0..5 {
            let mut weights = [1.0; UNIT];
            row.dequantize(unit, &mut weights);
            row.magnitudes(unit, &mut magnitudes);
            let lanes = row.lanes(unit);
            for (i, &place) in format.lane_order().iter().enumerate() {
                let place = usize::from(place);
                let quant = f32::from(lanes.quants[i / 32][i % 32]);
                let value = lanes.scales[i / 64][i / 4 % 8] * quant - lanes.offsets[place / 16];
                let weight = weights[place];
                // The product with the zero point is a term of its own.
                let near = (value - weight).abs() <= magnitudes[place] * f32::EPSILON;
                let finite = magnitudes[place].is_finite();
                assert!(near || !finite, "{format}: {place} of unit {unit} is {value}, not {weight}");
            }
        }
    }
    for format in [QuantFormat::Q8_0, QuantFormat::Q4_0] {
        let mut order = format.lane_order();
        order.sort_unstable();
        assert!(order.into_iter().eq(0..128), "{format}");
    }
    let taking = [16, 32, 64].map(|group| u4(group, true).takes_int8());
    assert_eq!(taking, [false, true, true]);
}

#[test]
fn padding_is_zero() {
    let mut noise = Noise(2);
    for format in QuantFormat::GGUF.into_iter().filter(|format| format.block_elements() == 32) {
        let layout = QuantLayout::new("t", format, 2, 160).unwrap();
        let blocks = noise.bytes(10 * format.block_bytes().unwrap());
        let mut planes = vec![0xA5; layout.bytes];
        repack(format, 2, 160, &blocks, &mut planes).unwrap();
        let mut unit = [f32::NAN; 128];
        layout.row(&planes, 1).unwrap().dequantize(1, &mut unit);
        assert!(unit[32..].iter().all(|&x| x == 0.0), "{format}: {unit:?}");
        assert!(layout.row(&planes, 2).is_none() && layout.row(&planes[..200], 1).is_none());
    }
}

fn planes_of(format: QuantFormat, rows: usize, columns: usize) -> Vec<u8> {
    vec![0xA5; format.bytes(rows, columns).unwrap()]
}

#[test]
fn quantised_weights_are_near() {
    let mut noise = Noise(5);
    let weights: Vec<f32> = noise.bytes(2 * 64).iter().map(|&byte| f32::from(byte as i8) / 50.0).collect();
    for (format, steps) in [(QuantFormat::Q8_0, 127.0), (QuantFormat::Q4_0, 8.0)] {
        let mut blocks = vec![0; 4 * format.block_bytes().unwrap()];
        quantize(format, 2, 64, &weights, &mut blocks).unwrap();
        let mut planes = planes_of(format, 2, 64);
        repack(format, 2, 64, &blocks, &mut planes).unwrap();
        let mut back = vec![f32::NAN; 128];
        dequantize(format, 2, 64, &planes, &mut back).unwrap();
        for (x, y) in weights.iter().zip(&back) {
            // A step at most, where the largest of the other sign is clipped; the f16 scale adds 2⁻¹¹.
            assert!((x - y).abs() <= 2.56 / steps * 1.001 + 2.56 / 2048.0, "{format}: {x} became {y}");
        }
        quantize(format, 1, 64, &[f32::NAN; 64], &mut blocks[..2 * format.block_bytes().unwrap()]).unwrap();
        quantize(format, 1, 64, &[f32::INFINITY; 64], &mut blocks[..2 * format.block_bytes().unwrap()])
            .unwrap();
    }
}

#[test]
fn the_weight_of_the_largest_magnitude_is_exact_and_its_sign_the_scales() {
    // ggml's rule for Q4_0, by which sixteen values can be exact, but not those with the signs exchanged.
    for scale in [0.5f32, -0.5] {
        let weights: [f32; 32] = std::array::from_fn(|i| scale * (i as f32 % 16.0 - 8.0));
        let mut block = [0; 18];
        quantize(QuantFormat::Q4_0, 1, 32, &weights, &mut block).unwrap();
        assert_eq!(half_at(&block, 0), scale);
        let back: [f32; 32] = std::array::from_fn(|i| weight(QuantFormat::Q4_0, &block, i));
        assert_eq!(back, weights);
    }
    // Of several with one magnitude the first counts.
    let weights: [f32; 32] = std::array::from_fn(|i| if i == 0 { -8.0 } else { 8.0 });
    let mut block = [0; 18];
    quantize(QuantFormat::Q4_0, 1, 32, &weights, &mut block).unwrap();
    assert_eq!(half_at(&block, 0), 1.0);
}

#[test]
fn wrong_sizes_are_errors() {
    let kind = |result: backend_api::BackendResult<()>| result.map_err(|e| e.kind());
    let shape = Err(ErrorKind::Shape);
    for format in QuantFormat::GGUF {
        let (columns, size) = (format.block_elements(), format.block_bytes().unwrap());
        let blocks = vec![0; 2 * size];
        let mut planes = planes_of(format, 2, columns);
        assert_eq!(kind(repack(format, 2, columns, &blocks, &mut planes)), Ok(()));
        for len in [0, 1, size, 2 * size - 1] {
            assert_eq!(kind(repack(format, 2, columns, &blocks[..len], &mut planes)), shape);
        }
        assert_eq!(kind(repack(format, 1, columns, &blocks, &mut planes)), shape, "too many blocks");
        assert_eq!(kind(repack(format, 2, columns - 1, &blocks, &mut planes)), shape);
        let short = planes.len() - 1;
        assert_eq!(kind(repack(format, 2, columns, &blocks, &mut planes[..short])), shape);
        assert_eq!(kind(unpack(format, 2, columns, &planes[..short], &mut vec![0; 2 * size])), shape);
        assert_eq!(kind(unpack(format, 2, columns, &planes, &mut vec![0; size])), shape);
        assert_eq!(kind(dequantize(format, 2, columns, &planes, &mut vec![0.0; columns])), shape);
        assert_eq!(kind(repack(format, usize::MAX, columns, &blocks, &mut planes)), Err(ErrorKind::Overflow));
        let longest = usize::MAX / 256 * 256;
        assert_eq!(kind(repack(format, 0, longest, &[], &mut [])), Ok(()), "no rows");
        assert_eq!(kind(repack(format, 0, columns, &[], &mut [])), Ok(()));
        assert_eq!(kind(repack(format, 5, 0, &[], &mut [])), Ok(()));
        assert_eq!(kind(unpack(format, 5, 0, &[], &mut [])), Ok(()));
        assert_eq!(kind(dequantize(format, 5, 0, &[], &mut [])), Ok(()));
    }
    let u4 = QuantFormat::U4 { group: 32, zero_points: false };
    assert_eq!(kind(repack(u4, 0, 0, &[], &mut [])), Err(ErrorKind::Unsupported));
    assert_eq!(kind(quantize(u4, 0, 0, &[], &mut [])), Err(ErrorKind::Unsupported));
    assert_eq!(kind(quantize(QuantFormat::Q4_0, 1, 31, &[0.0; 31], &mut [])), shape);
    assert_eq!(kind(quantize(QuantFormat::Q4_0, 1, 32, &[0.0; 31], &mut [0; 18])), shape);
    let source = MatMulNBits {
        rows: 1,
        columns: 32,
        group: 32,
        b: &[0; 16],
        scales: GroupScales::F32(&[1, 0, 128, 63]),
        zero_points: None,
    };
    let mut planes = planes_of(u4, 1, 32);
    assert_eq!(kind(source.repack(&mut planes)), Err(ErrorKind::Unsupported), "1 + 2⁻²³ is no f16");
    let halves = MatMulNBits { scales: GroupScales::F16(&[0, 60]), ..source };
    assert_eq!(kind(halves.repack(&mut planes)), Ok(()));
    assert_eq!(kind(MatMulNBits { b: &[0; 15], ..halves }.repack(&mut planes)), shape);
    assert_eq!(kind(MatMulNBits { scales: GroupScales::F16(&[0]), ..halves }.repack(&mut planes)), shape);
    assert_eq!(kind(MatMulNBits { zero_points: Some(&[]), ..halves }.repack(&mut planes)), shape);
    assert_eq!(kind(MatMulNBits { group: 0, ..halves }.repack(&mut planes)), shape);
    assert_eq!(
        kind(MatMulNBits { rows: usize::MAX, ..halves }.repack(&mut planes)),
        Err(ErrorKind::Overflow)
    );
    for columns in [0, 33, usize::MAX] {
        assert!(MatMulNBits { columns, ..halves }.repack(&mut planes).is_err());
    }
    let gptq = Gptq {
        rows: 8,
        columns: 32,
        group: 32,
        qweight: &[0; 127],
        qzeros: &[0; 4],
        scales: &[0; 16],
        g_idx: None,
        zeros_less_one: true,
    };
    assert_eq!(kind(gptq.repack(&mut planes)), shape);
    assert_eq!(kind(Gptq { rows: 7, ..gptq }.repack(&mut planes)), shape);
    let awq = Awq { rows: 8, columns: 32, group: 32, qweight: &[0; 127], qzeros: &[0; 4], scales: &[0; 16] };
    assert_eq!(kind(awq.repack(&mut planes)), shape);
}
