//! Mxfp4: every exponent and quant, and the nearest numbers.

use backend_api::quant::{QuantFormat, dequantize, quantize, repack};

use super::{planes_of, weight};

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
