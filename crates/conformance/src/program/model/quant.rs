//! Operations on quantised matrices.

use backend_api::desc::{DequantizeDesc, QuantGatherDesc, QuantMatmulDesc, QuantMatrix};
use backend_api::quant::{QuantPlane, ScaleKind, dequantize as weights_of};
use backend_api::{Activation, BackendResult, DType, MathMode};
use half::f16;

use super::element::{EXACT, Element};
use super::memory::Memory;

/// The weights of a matrix, row by row, as far as they are integers, and a bound of what a kernel may add up
/// for one of them: the terms of `s · (q − z) − m`, each by itself.
struct Weights {
    numbers: Vec<Option<i64>>,
    columns: usize,
    magnitude: f64,
}

impl Weights {
    /// `None` where a byte of the planes is unknown.
    fn of(memory: &Memory, matrix: &QuantMatrix) -> BackendResult<Option<Self>> {
        let QuantMatrix { ptr, format, rows, columns, .. } = *matrix;
        let layout = matrix.layout("model")?;
        let bytes = memory.bytes(ptr, layout.bytes);
        if bytes.len() < layout.bytes || bytes.iter().any(|&(_, known)| known != 0xff) {
            return Ok(None);
        }
        let planes: Vec<u8> = bytes.into_iter().map(|(byte, _)| byte).collect();
        let mut weights = vec![0f32; rows * columns];
        weights_of(format, rows, columns, &planes, &mut weights)?;
        let whole = |x: f32| (x.fract() == 0.0 && x.abs() <= EXACT as f32).then_some(x as i64);
        // The largest of everything that lies where f16 scales do, and of the integers of a block.
        let (plane, factor) = match format.scale_kind() {
            ScaleKind::Block | ScaleKind::Exponent => (layout.scales, 128.0),
            // The minimum is of a scale's size.
            ScaleKind::BlockMin => (layout.scales, 31.0 + 1.0),
            ScaleKind::SuperBlock => (layout.scales, 63.0 * 31.0 + 63.0),
            ScaleKind::SuperBlockSigned => (layout.scales, 32.0 * 127.0),
            ScaleKind::HalfBlock => (layout.extra, 128.0 * (63.0 + 32.0)),
            ScaleKind::HalfBlockMin => (layout.extra, 15.0 * 3.0 + 15.0),
            _ => (layout.scales, 15.0 + 255.0),
        };
        let scale = match format.scale_kind() {
            ScaleKind::Exponent => largest_power(&planes, plane, rows),
            ScaleKind::SuperBlock => largest(&planes, plane, rows, Some((8, 2))),
            ScaleKind::SuperBlockSigned => largest(&planes, plane, rows, Some((4, 1))),
            _ => largest(&planes, plane, rows, None),
        };
        let numbers = weights.into_iter().map(whole).collect();
        Ok(Some(Self { numbers, columns, magnitude: scale * factor }))
    }

    fn get(&self, row: usize, column: usize) -> Option<i64> {
        self.numbers[row * self.columns + column]
    }
}

/// The largest magnitude of the f16 numbers of a plane: of all, or of each so many those that come first.
fn largest(planes: &[u8], plane: QuantPlane, rows: usize, packed: Option<(usize, usize)>) -> f64 {
    let scales = planes[plane.offset..plane.offset + rows * plane.row_bytes].as_chunks::<2>().0;
    let magnitude = |&bytes: &[u8; 2]| f16::from_le_bytes(bytes).to_f64().abs();
    let largest = |all: f64, x: f64| if x.is_finite() { all.max(x) } else { f64::INFINITY };
    let is_scale = |i: usize| packed.is_none_or(|(each, first)| i % each < first);
    let scales = scales.iter().enumerate().filter(|&(i, _)| is_scale(i));
    scales.map(|(_, bytes)| magnitude(bytes)).fold(0.0, largest)
}

/// The largest power of two of a plane of exponents.
fn largest_power(planes: &[u8], plane: QuantPlane, rows: usize) -> f64 {
    let exponents = &planes[plane.offset..plane.offset + rows * plane.row_bytes];
    exponents.iter().max().map_or(0.0, |&most| 2f64.powi(i32::from(most) - 128))
}

pub(super) fn dequantize(memory: &mut Memory, desc: &DequantizeDesc) -> BackendResult<()> {
    memory.check("dequantize", &desc.operands("dequantize")?)?;
    let (QuantMatrix { rows, columns, .. }, output) = (desc.input, desc.output);
    let weights = if rows * columns > 0 { Weights::of(memory, &desc.input)? } else { None };
    for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
        let number = weights.as_ref().and_then(|weights| weights.get(row, column));
        memory.set(output.ptr, output.dtype, row * output.ld + column, Element::of(output.dtype, number));
    }
    Ok(())
}

pub(super) fn gather(memory: &mut Memory, desc: &QuantGatherDesc) -> BackendResult<()> {
    memory.check("quant_gather", &desc.operands("quant_gather")?)?;
    let QuantMatrix { rows, columns, .. } = desc.table;
    if desc.count == 0 || columns == 0 {
        return Ok(());
    }
    let weights = Weights::of(memory, &desc.table)?;
    for i in 0..desc.count {
        let index = memory.get(desc.indices, DType::U32, i).number(DType::U32);
        for column in 0..columns {
            let element = match index {
                None => Element::UNKNOWN,
                Some(row) if (row as usize) < rows => {
                    let number = weights.as_ref().and_then(|weights| weights.get(row as usize, column));
                    Element::of(desc.dtype, number)
                }
                Some(_) => Element { bits: 0, known: !0 },
            };
            memory.set(desc.output, desc.dtype, i * columns + column, element);
        }
    }
    Ok(())
}

/// Few rows, of which no weight is rounded, with a bias, ReLU and a residual. Activations that may be rounded to
/// 8 bits give nothing exact, so that programs don't ask for them.
pub(super) fn matmul(memory: &mut Memory, desc: &QuantMatmulDesc) -> BackendResult<()> {
    memory.check("quant_matmul", &desc.operands("quant_matmul")?)?;
    let (m, n, k, a, c) = (desc.m, desc.n(), desc.k(), desc.a, desc.c);
    if m * n == 0 {
        return Ok(());
    }
    let weights = Weights::of(memory, &desc.b)?;
    let mut results = Vec::with_capacity(m * n);
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let number = |memory: &Memory, ptr, dtype, at| memory.get(ptr, dtype, at).number(dtype);
        let product = || {
            let weights = weights.as_ref().filter(|_| desc.math != MathMode::Int8)?;
            let (mut sum, mut magnitude) = (0, 0.0);
            for p in 0..k {
                let x = number(memory, a.ptr, a.dtype, i * a.ld + p)?;
                sum += x * weights.get(j, p)?;
                magnitude += x.abs() as f64 * weights.magnitude;
            }
            let bias = desc.bias.map_or(Some(0), |bias| number(memory, bias, c.dtype, j))?;
            let biased = sum + bias;
            let activated = if desc.activation == Activation::Relu { biased.max(0) } else { biased };
            let residual = desc
                .residual
                .map_or(Some(0), |residual| number(memory, residual.ptr, c.dtype, i * residual.ld + j))?;
            let all = magnitude + (bias.abs() + residual.abs()) as f64;
            (all <= EXACT as f64).then_some(activated + residual)
        };
        results.push((i * c.ld + j, Element::of(c.dtype, product())));
    }
    for (place, element) in results {
        memory.set(c.ptr, c.dtype, place, element);
    }
    Ok(())
}
