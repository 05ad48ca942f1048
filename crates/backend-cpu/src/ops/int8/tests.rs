//! Rounding, and ways to multiply against each other and against the weights.

use std::iter::repeat_with;

use super::many::Many;
use super::*;
use crate::ops::noise;

#[test]
fn activations_are_rounded_to_the_nearest_multiple_of_a_127th_of_the_largest() {
    let mut block = [0.0; BLOCK];
    block[..6].copy_from_slice(&[-254.0, 3.0, 5.0, 4.9, -1.1, 254.0]);
    let mut quants = [0; BLOCK];
    assert_eq!(round(&block, &mut quants), 2.0);
    assert_eq!(quants[..7], [-127, 2, 2, 2, -1, 127, 0]);
    let mut unit = Unit::zeroed();
    let activations = &[&block[..], &[1.0, f32::NAN], &[0.0; 40]].concat();
    let order = &QuantFormat::Q4_0.lane_order();
    Arch::new().dispatch(Round { activations, order, unit: &mut unit });
    assert_eq!((unit.scales[0], unit.scales[4], unit.sums[0]), (2.0, 2.0, 10.0));
    assert!(unit.scales[1].is_nan() && unit.sums[2].is_nan());
    assert_eq!((unit.scales[2], unit.scales[7], unit.sums[5]), (0.0, 0.0, 0.0));
    assert_eq!(unit.quants[0][..4], [-127, -1, 2, 127]);
}

#[test]
fn tiny_activations_are_zeros_and_the_largest_ones_stay_finite() {
    let mut quants = [0; BLOCK];
    assert_eq!(SMALLEST, 2f32.powi(-119));
    assert_eq!(round(&[SMALLEST / 2.0, f32::from_bits(1)], &mut quants), 0.0);
    assert!(round(&[SMALLEST], &mut quants) >= f32::MIN_POSITIVE);
    assert_eq!(quants[0], 127);
    assert!(round(&[f32::MIN, 1.0], &mut quants).is_finite());
    assert_eq!(quants[..2], [-127, 0]);
    assert!(round(&[f32::NEG_INFINITY, 1.0], &mut quants).is_nan());
}

#[test]
fn vector_instructions_make_the_sums_of_portable_loops() {
    let mut noise = noise();
    let u4 = |group| QuantFormat::U4 { group, zero_points: true };
    let formats = QuantFormat::GGUF.into_iter().chain([32, 64, 128, 512].map(u4));
    for format in formats.filter(|format| format.takes_int8()) {
        let step = if let QuantFormat::U4 { .. } = format { 1 } else { format.block_elements() };
        for (m, k) in [(1, 512), (2, 256), (16, 1), (17, 300), (33, 1000)] {
            let (n, k) = (11, usize::next_multiple_of(k, step));
            let layout = QuantLayout::new("test", format, n, k).unwrap();
            let mut planes: Vec<u8> = repeat_with(|| noise() as u8).take(layout.bytes).collect();
            if format == QuantFormat::Mxfp4 {
                planes[layout.scales.offset..]
                    .iter_mut()
                    .for_each(|exponent| *exponent = 100 + *exponent % 50);
            }
            let mut a: Vec<f32> = repeat_with(|| noise() as f32 - 8e6).take(m * k).collect();
            if m == 17 {
                (a[3], a[k], a[2 * k - 1]) = (f32::NAN, f32::INFINITY, 1e-38);
            }
            let mut rounded = Rounded::new(Cores::One, format, &a, [m, k, k]).ok().unwrap();
            let tiled = rounded.interleaved(Cores::One, format).ok().unwrap();
            for tiled in std::iter::once(None).chain(tiled.map(Some)) {
                rounded.tiled = tiled;
                let way = if rounded.tiled.is_some() { "many" } else { "few" };
                // Tiles that aren't worth it on this CPU are multiplied by portable loops alone.
                let is_one_way = rounded.tiled.is_none() || many::is_worth_it(usize::MAX);
                let [mut fast, mut slow] = [vec![1.0f32; n * m], vec![2.0; n * m]];
                rounded.multiply(&layout, &planes, 0, &mut fast);
                let product =
                    Product { a: &rounded, layout: &layout, planes: &planes, first: 0, sums: &mut slow };
                match &rounded.tiled {
                    None => Few(Portable, product).with_simd(Scalar::new()),
                    Some(Tiled { tiles, weights }) => {
                        Many { dot: Portable, weights: *weights, tiles, product }.with_simd(Scalar::new());
                    }
                }
                let what = format!("{format}, {way}, {m} rows of {k}");
                let same = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
                assert!(!is_one_way || fast.iter().zip(&slow).all(same), "{what}");
                assert!(m != 17 || fast.chunks(m).all(|sums| sums[0].is_nan() && sums[1].is_nan()), "{what}");
                assert!(fast.iter().any(|sum| sum.is_finite()), "{what}");
                near_those_of_the_weights(&rounded, &layout, &planes, &fast, &what);
                near_those_of_the_weights(&rounded, &layout, &planes, &slow, &what);
            }
        }
    }
}

/// Compares finite sums with those of weights times rounded activations.
fn near_those_of_the_weights(a: &Rounded, layout: &QuantLayout, planes: &[u8], sums: &[f32], what: &str) {
    let (mut weights, mut magnitudes) = ([0.0; UNIT], [0.0; UNIT]);
    for (j, sums) in sums.chunks(a.m).enumerate() {
        let row = layout.row(planes, j).unwrap();
        let (mut wanted, mut terms) = (vec![0.0; a.m], vec![0.0; a.m]);
        for (number, units) in a.units.chunks(a.m).enumerate() {
            row.dequantize(number, &mut weights);
            row.magnitudes(number, &mut magnitudes);
            for (i, unit) in units.iter().enumerate() {
                for (at, &place) in a.order.iter().enumerate() {
                    let place = usize::from(place);
                    if number * UNIT + place < a.k {
                        let x = f64::from(unit.quants[at / 32][at % 32]) * f64::from(unit.scales[at / 4 % 8]);
                        wanted[i] += x * f64::from(weights[place]);
                        terms[i] += x.abs() * f64::from(magnitudes[place]);
                    }
                }
            }
        }
        for (sum, (wanted, terms)) in sums.iter().zip(wanted.iter().zip(terms)) {
            let error = (f64::from(*sum) - wanted).abs();
            let is_near = error <= 16.0 * terms * f64::from(f32::EPSILON);
            assert!(is_near || !sum.is_finite(), "{what}: {sum}, not {wanted}");
        }
    }
}
