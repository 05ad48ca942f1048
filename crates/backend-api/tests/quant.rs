//! Quantised weights: planes against a reading of GGUF's blocks weight by weight, and the other layouts.

use backend_api::ErrorKind;
use backend_api::quant::{
    Awq, Gptq, GroupScales, MatMulNBits, QuantFormat, QuantLayout, UNIT, dequantize, quantize, repack,
    to_matmul_nbits, unpack,
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
fn integers_and_their_scales_make_up_the_weights() {
    let mut noise = Noise(0x1E5);
    let u4 = |group, zero_points| QuantFormat::U4 { group, zero_points };
    for format in QuantFormat::GGUF.into_iter().chain([u4(16, true), u4(32, false), u4(256, true)]) {
        let layout = QuantLayout::new("test", format, 2, 512).unwrap();
        let planes = noise.bytes(layout.bytes);
        let row = layout.row(&planes, 1).unwrap();
        for unit in 0..5 {
            let (mut weights, mut quants) = ([1.0; UNIT], [1; UNIT]);
            row.dequantize(unit, &mut weights);
            let scales = row.integers(unit, &mut quants);
            for (i, (&quant, weight)) in quants.iter().zip(weights).enumerate() {
                let scale = scales[i / 16];
                let value = scale.scale * (f32::from(quant) - scale.zero) - scale.min;
                assert!(same(value, weight), "{format}: {i} of unit {unit}");
            }
        }
    }
    let taking = [16, 32, 64].map(|group| u4(group, true).takes_int8());
    assert_eq!(taking, [false, true, true]);
}

#[test]
fn padding_is_zero() {
    let mut noise = Noise(2);
    for format in [QuantFormat::Q8_0, QuantFormat::Q4_0, QuantFormat::Mxfp4] {
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

/// A matrix in groups of 4-bit weights: quants, zero points and scales.
struct Groups {
    rows: usize,
    columns: usize,
    group: usize,
    quants: Vec<u8>,
    zeros: Vec<u8>,
    scales: Vec<f16>,
}

impl Groups {
    fn new(noise: &mut Noise, [rows, columns, group]: [usize; 3]) -> Self {
        let groups = columns.div_ceil(group);
        let mut nibbles = |n: usize| -> Vec<u8> { noise.bytes(n).iter().map(|byte| byte & 15).collect() };
        let (quants, zeros) = (nibbles(rows * columns), nibbles(rows * groups));
        let scales = noise.bytes(rows * groups);
        let scales = scales.iter().map(|&byte| f16::from_f32(f32::from(byte as i8) / 64.0)).collect();
        Self { rows, columns, group, quants, zeros, scales }
    }

    fn groups(&self) -> usize {
        self.columns.div_ceil(self.group)
    }

    fn check(&self, format: QuantFormat, planes: &[u8], has_zeros: bool) {
        let &Self { rows, columns, group, .. } = self;
        let mut weights = vec![f32::NAN; rows * columns];
        dequantize(format, rows, columns, planes, &mut weights).unwrap();
        for (i, &got) in weights.iter().enumerate() {
            let at = i / columns * self.groups() + i % columns / group;
            let zero = if has_zeros { f32::from(self.zeros[at]) } else { 8.0 };
            let want = self.scales[at].to_f32() * (f32::from(self.quants[i]) - zero);
            assert!(got == want, "{format}, {rows}×{columns}, weight {i}: {got}, not {want}");
        }
        // Padding behind the last column has the value 0, or as near as the zero point 16 lets it be.
        let layout = QuantLayout::new("t", format, rows, columns).unwrap();
        let mut unit = [f32::NAN; 128];
        layout.row(planes, rows - 1).unwrap().dequantize(layout.units - 1, &mut unit);
        let nearest = if has_zeros && *self.zeros.last().unwrap() > 15 {
            -self.scales.last().unwrap().to_f32()
        } else {
            0.0
        };
        let padding = &unit[columns - (layout.units - 1) * 128..];
        assert!(padding.iter().all(|&x| x == 0.0 || x == nearest), "{format}: {unit:?}");
    }
}

fn pack_nibbles(rows: usize, bytes: usize, nibble: impl Fn(usize, usize) -> u8) -> Vec<u8> {
    (0..rows * bytes)
        .map(|at| nibble(at / bytes, 2 * (at % bytes)) | nibble(at / bytes, 2 * (at % bytes) + 1) << 4)
        .collect()
}

fn planes_of(format: QuantFormat, rows: usize, columns: usize) -> Vec<u8> {
    vec![0xA5; format.bytes(rows, columns).unwrap()]
}

#[test]
fn matmul_nbits_goes_to_planes_and_back() {
    let mut noise = Noise(3);
    for [rows, columns, group] in
        [[3, 96, 16], [2, 100, 32], [5, 129, 64], [2, 300, 128], [3, 260, 256], [1, 7, 16], [2, 33, 1024]]
    {
        let it = Groups::new(&mut noise, [rows, columns, group]);
        let groups = it.groups();
        let b =
            pack_nibbles(
                rows,
                groups * group / 2,
                |r, c| {
                    if c < columns { it.quants[r * columns + c] } else { 3 }
                },
            );
        let zeros =
            pack_nibbles(
                rows,
                groups.div_ceil(2),
                |r, g| {
                    if g < groups { it.zeros[r * groups + g] } else { 0 }
                },
            );
        let scales: Vec<u8> = it.scales.iter().flat_map(|s| s.to_le_bytes()).collect();
        let wide: Vec<u8> = it.scales.iter().flat_map(|s| s.to_f32().to_le_bytes()).collect();
        for zero_points in [None, Some(&zeros[..])] {
            for scales_of in [GroupScales::F16(&scales), GroupScales::F32(&wide)] {
                let source = MatMulNBits { rows, columns, group, b: &b, scales: scales_of, zero_points };
                let format = source.format();
                let mut planes = planes_of(format, rows, columns);
                source.repack(&mut planes).unwrap();
                it.check(format, &planes, zero_points.is_some());
                let mut back =
                    [vec![1; b.len()], vec![1; scales.len()], vec![1; zero_points.map_or(0, <[_]>::len)]];
                let [b2, s2, z2] = &mut back;
                to_matmul_nbits(format, rows, columns, &planes, b2, s2, z2).unwrap();
                assert_eq!((&back[1], &back[2][..]), (&scales, zero_points.unwrap_or_default()));
                let again = MatMulNBits { b: &back[0], ..source };
                let mut second = planes_of(format, rows, columns);
                again.repack(&mut second).unwrap();
                assert_eq!(second, planes);
            }
        }
    }
}

#[test]
fn gptq_names_a_matrix_in_words_along_its_rows() {
    let mut noise = Noise(4);
    for [rows, columns, group] in [[8, 64, 32], [16, 136, 128], [24, 264, 256]] {
        let it = Groups::new(&mut noise, [rows, columns, group]);
        let groups = it.groups();
        let by_group = |g: usize, r: usize| it.scales[r * groups + g].to_le_bytes();
        let scales: Vec<u8> = (0..groups * rows).flat_map(|i| by_group(i / rows, i % rows)).collect();

        // A word of GPTQ has eight weights of a row, those of one row after those of another.
        let qweight = pack_nibbles(columns / 8 * rows, 4, |word, i| {
            it.quants[word % rows * columns + word / rows * 8 + i]
        });
        for zeros_less_one in [false, true] {
            let zero =
                |g: usize, r: usize| it.zeros[r * groups + g].wrapping_sub(u8::from(zeros_less_one)) & 15;
            let qzeros = pack_nibbles(groups, rows / 2, zero);
            let g_idx: Vec<u8> = (0..columns).flat_map(|c| ((c / group) as u32).to_le_bytes()).collect();
            let source = Gptq {
                rows,
                columns,
                group,
                qweight: &qweight,
                qzeros: &qzeros,
                scales: &scales,
                g_idx: Some(&g_idx),
                zeros_less_one,
            };
            let mut planes = planes_of(source.format(), rows, columns);
            source.repack(&mut planes).unwrap();
            // Stored less 1, a zero point of 0 can only be meant as 16.
            let zeros = it.zeros.iter().map(|&z| if zeros_less_one && z == 0 { 16 } else { z }).collect();
            let meant = Groups { zeros, quants: it.quants.clone(), scales: it.scales.clone(), ..it };
            meant.check(source.format(), &planes, true);
            let reordered = g_idx.iter().rev().copied().collect::<Vec<_>>();
            let refused =
                Gptq { g_idx: Some(&reordered), ..source }.repack(&mut planes).map_err(|e| e.kind());
            assert_eq!(refused, Err(ErrorKind::Unsupported));
        }
    }
}

#[test]
fn awq_names_a_matrix_in_words_along_its_columns() {
    let mut noise = Noise(7);
    for [rows, columns, group] in [[8, 64, 32], [16, 136, 128], [24, 264, 256], [8, 45, 16], [16, 300, 256]] {
        let it = Groups::new(&mut noise, [rows, columns, group]);
        let groups = it.groups();
        let by_group = |g: usize, r: usize| it.scales[r * groups + g].to_le_bytes();
        let scales: Vec<u8> = (0..groups * rows).flat_map(|i| by_group(i / rows, i % rows)).collect();
        // The nibble i of a word of AWQ has this row of eight.
        const ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];
        let row_of = |i: usize| i / 8 * 8 + ORDER[i % 8];
        let qweight = pack_nibbles(columns, rows / 2, |c, i| it.quants[row_of(i) * columns + c]);
        let qzeros = pack_nibbles(groups, rows / 2, |g, i| it.zeros[row_of(i) * groups + g]);
        let source = Awq { rows, columns, group, qweight: &qweight, qzeros: &qzeros, scales: &scales };
        let mut planes = planes_of(source.format(), rows, columns);
        source.repack(&mut planes).unwrap();
        it.check(source.format(), &planes, true);
    }
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

/// A block of Mxfp4 with this exponent, whose first sixteen weights are those of all quants.
fn all_quants(exponent: u8) -> [f32; 32] {
    let mut block = [0; 17];
    block[0] = exponent;
    block[1..].iter_mut().zip(0..16).for_each(|(byte, quant)| *byte = quant);
    let mut planes = planes_of(QuantFormat::Mxfp4, 1, 32);
    repack(QuantFormat::Mxfp4, 1, 32, &block, &mut planes).unwrap();
    let mut weights = [f32::NAN; 32];
    dequantize(QuantFormat::Mxfp4, 1, 32, &planes, &mut weights).unwrap();
    weights
}

#[test]
fn every_exponent_of_mxfp4_gives_ggmls_weights() {
    const DOUBLED: [f64; 8] = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0];
    for exponent in 0..=255 {
        let weights = all_quants(exponent);
        for (i, doubled) in DOUBLED.into_iter().enumerate() {
            // What is above the largest f32 is infinite.
            let value = (doubled * 2f64.powi(i32::from(exponent) - 128)) as f32;
            assert_eq!((weights[i], weights[8 + i]), (value, -value), "{exponent}");
        }
        assert!(weights[16..].iter().all(|&x| x == 0.0) && weights[8].is_sign_positive());
    }
    assert_eq!(all_quants(127)[..8], [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
    assert_eq!(all_quants(0)[1], 2f32.powi(-126) / 4.0);
    assert_eq!(all_quants(252)[7], 1.5 * 2f32.powi(127));
    assert_eq!(all_quants(255)[1..3], [2f32.powi(127), f32::INFINITY]);
}

#[test]
fn mxfp4_is_quantised_to_the_nearest_number_by_the_largest_magnitude() {
    let quantised = |weights: &[f32; 32]| {
        let mut block = [0; 17];
        quantize(QuantFormat::Mxfp4, 1, 32, weights, &mut block).unwrap();
        block
    };
    for (scale, exponent) in [(1.0, 127), (2f32.powi(125), 252), (2f32.powi(-126), 1), (-2f32.powi(-127), 0)]
    {
        let weights = all_quants(127).map(|x| x * scale);
        let block = quantised(&weights);
        assert_eq!(block[0], exponent, "{scale}");
        let back: [f32; 32] = std::array::from_fn(|i| weight(QuantFormat::Mxfp4, &block, i));
        assert_eq!(back, weights, "{scale}");
    }
    // 5 is as far from 4 as from 6, and 2.4 nearer to 2; above 6 there is nothing up to 8.
    let mut weights = [0.0; 32];
    weights[..5].copy_from_slice(&[5.0, -2.4, 7.9, f32::NAN, -0.2]);
    let block = quantised(&weights);
    assert_eq!((block[0], &block[1..6]), (127, &[6, 12, 7, 0, 0][..]));
    let block = quantised(&[f32::NEG_INFINITY; 32]);
    assert_eq!((block[0], block[1]), (252, 0xff));
    assert_eq!(quantised(&[f32::NAN; 32]), [0; 17]);
    assert_eq!(quantised(&[0.0; 32]), [0; 17]);
}

#[test]
fn zero_points_of_unpacked_planes_fill_the_last_group_and_are_nibbles() {
    let format = QuantFormat::U4 { group: 256, zero_points: true };
    let (columns, groups, zeros) = (300, 2, [3, 9]);
    let layout = QuantLayout::new("t", format, 1, columns).unwrap();
    let mut planes = vec![0; layout.bytes];
    planes[layout.extra.offset..][..groups].copy_from_slice(&zeros);
    let (mut b, mut scales, mut zero_points) = (vec![0; groups * 128], vec![0; 2 * groups], [0]);
    to_matmul_nbits(format, 1, columns, &planes, &mut b, &mut scales, &mut zero_points).unwrap();
    assert_eq!(zero_points, [zeros[0] | zeros[1] << 4]);
    // Planes end at a multiple of 128 weights, and say themselves what lies there.
    let behind = columns.next_multiple_of(128) / 2;
    assert_eq!(b[behind..], [zeros[1] | zeros[1] << 4; 256 - 192]);
    planes[layout.extra.offset] = 16;
    let error = to_matmul_nbits(format, 1, columns, &planes, &mut b, &mut scales, &mut zero_points);
    assert_eq!(error.map_err(|error| error.kind()), Err(ErrorKind::Shape), "4 bits don't hold 16");
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
