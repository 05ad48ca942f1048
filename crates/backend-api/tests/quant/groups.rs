//! Weights of 4 bits in groups: planes of them, and the layouts that they come in.

use backend_api::ErrorKind;
use backend_api::quant::{
    Awq, Gptq, GroupScales, MatMulNBits, QuantFormat, QuantLayout, dequantize, to_matmul_nbits,
};
use half::f16;

use super::{Noise, planes_of};

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
