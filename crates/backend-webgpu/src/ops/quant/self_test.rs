//! Whether a variant on cooperative matrices makes right products with a quantised matrix on this device.

use backend_api::desc::{Matrix, QuantMatmulDesc, QuantMatrix};
use backend_api::quant::{QuantFormat, QuantLayout, QuantPlane, ScaleKind, dequantize};
use backend_api::{BackendResult, DType};

use super::operands::Operands;
use super::planes::{Planes, Stored};
use crate::ops::op_context::OpContext;
use crate::ops::shared::self_test::{OP, SelfTest, compare};

/// Multiplies m×k integers with n rows of integers in a format, and compares with the host's products of the
/// weights. Sums must be whole numbers of `dtype`, C's type.
pub(super) fn check_product(
    ctx: &OpContext,
    format: QuantFormat,
    dtype: DType,
    [m, n, k]: [usize; 3],
    a: &[i32],
    launch: impl FnOnce(&mut SelfTest<'_>, &QuantMatmulDesc, &Operands, &Planes) -> BackendResult<()>,
) -> BackendResult<()> {
    let layout = QuantLayout::new(OP, format, n, k)?;
    let planes = planes_of_integers(&layout);
    let mut weights = vec![0.0; n * k];
    dequantize(format, n, k, &planes, &mut weights)?;

    let mut test = SelfTest::new(ctx);
    let b = test.upload(&planes)?;
    let results = test.results(m * n, dtype)?;
    let windows = Operands::alone(ctx, test.halves(a)?, results.window.clone());
    let planes =
        Planes::new(ctx, OP, Stored { layout: &layout, slice: Some(&b) }, (0, n), &windows.product.c)?;
    let matrix = |dtype, ld| Matrix::new(0, dtype, ld);
    let b = QuantMatrix::new(0, format, n, k);
    let desc = QuantMatmulDesc::new(m, matrix(DType::F16, k), b, matrix(dtype, n));
    launch(&mut test, &desc, &windows, &planes)?;
    let found = test.whole_numbers(results)?;

    let product = |i: usize, j: usize| -> Option<i32> {
        // Sums of integers below 2²⁴, exact in any order.
        let sum: f32 = (0..k).map(|p| a[i * k + p] as f32 * weights[j * k + p]).sum();
        Some(sum as i32)
    };
    let wanted: Vec<_> = (0..m * n).map(|at| product(at / n, at % n)).collect();
    compare(&found, &wanted)
}

/// The planes of a matrix of integers: random quants, scales of 1 and 2 as f16, and small ones as integers.
pub(super) fn planes_of_integers(layout: &QuantLayout) -> Vec<u8> {
    let random = |i: usize| ((i as u32 ^ 0x2c1b_3c6d).wrapping_mul(0x9e37_79b9) >> 24) as u8;
    let places = |plane: QuantPlane| plane.offset..plane.offset + layout.rows * plane.row_bytes;
    let (scales, extra) = (places(layout.scales), places(layout.extra));
    // Of 1 and 2, the lower byte is 0.
    let scale = |at: usize| if at.is_multiple_of(2) { 0 } else { [0x3c, 0x40][usize::from(random(at) & 1)] };
    let byte = |at: usize| match layout.format.scale_kind() {
        ScaleKind::SuperBlock if scales.contains(&at) => {
            if (at - scales.start) % 16 < 4 {
                scale(at)
            } else {
                random(at) & 3
            }
        }
        // −1 and 1 in turn: 31 and 33, whose upper two bits and low four are apart.
        ScaleKind::SuperBlockSigned if scales.contains(&at) => match (at - scales.start) % 8 {
            0 | 1 => scale(at),
            2 | 3 => 0b1001_1001,
            _ => 0x1F,
        },
        // 2^(e − 128).
        ScaleKind::Exponent if scales.contains(&at) => 128 + (random(at) & 1),
        ScaleKind::HalfBlock if scales.contains(&at) => random(at) & 3,
        ScaleKind::HalfBlockMin if scales.contains(&at) => random(at) & 0x33,
        ScaleKind::HalfBlock | ScaleKind::HalfBlockMin if extra.contains(&at) => scale(at),
        ScaleKind::Group if extra.contains(&at) => random(at) & 15,
        _ if scales.contains(&at) => scale(at),
        _ => random(at),
    };
    (0..layout.bytes).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::super::formats::kinds;
    use super::*;

    /// Otherwise a right kernel would be taken for a wrong one.
    #[test]
    fn products_of_the_self_test_are_whole_numbers_of_f32() {
        for format in kinds() {
            let layout = QuantLayout::new(OP, format, 4, 4096).unwrap();
            let mut weights = vec![0.0; 4 * 4096];
            dequantize(format, 4, 4096, &planes_of_integers(&layout), &mut weights).unwrap();
            let largest = weights.iter().fold(0.0, |most: f32, w| most.max(w.abs()));
            assert!(
                weights.iter().all(|w| w.fract() == 0.0) && (2.0..=600.0).contains(&largest),
                "{format}: {largest}"
            );
            assert!(weights.iter().any(|&w| w != weights[0]));
        }
    }
}
