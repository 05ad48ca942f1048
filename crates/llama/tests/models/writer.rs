//! Writes GGUF files of random models.

use anyhow::ensure;
use backend_api::quant::{QuantFormat, quantize};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use half::f16;

/// Stand for MXFP4 and IQ4_XS, which candle doesn't know: types of candle's with blocks as long, which aren't read.
pub(crate) const MXFP4: GgmlDType = GgmlDType::Q8_1;
pub(crate) const IQ4_XS: GgmlDType = GgmlDType::Q8K;

/// Tensors begin at multiples of this.
const ALIGNMENT: usize = 32;

/// A value of the metadata.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
}

/// A file in the making.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    metadata: Vec<(String, Value)>,
    tensors: Vec<(String, Vec<usize>, u32, Vec<u8>)>,
}

impl Writer {
    pub(crate) fn set(&mut self, key: impl Into<String>, value: Value) {
        self.metadata.push((key.into(), value));
    }

    /// Adds a tensor in a format, and returns the numbers that the format makes of `numbers`.
    pub(crate) fn tensor(
        &mut self,
        name: &str,
        shape: &[usize],
        kind: GgmlDType,
        numbers: &[f32],
    ) -> anyhow::Result<Vec<f64>> {
        ensure!(shape.iter().product::<usize>() == numbers.len(), "{name}: {shape:?}");
        if kind == MXFP4 {
            let mut blocks = vec![0; numbers.len() / 32 * 17];
            quantize(QuantFormat::Mxfp4, numbers.len() / 32, 32, numbers, &mut blocks)?;
            let stored =
                (0..numbers.len()).map(|i| weight_of_mxfp4(&blocks[i / 32 * 17..], i % 32)).collect();
            self.tensors.push((name.to_owned(), shape.to_vec(), 39, blocks));
            return Ok(stored);
        }
        if kind == IQ4_XS {
            let (blocks, stored) = iq4_xs(numbers);
            self.tensors.push((name.to_owned(), shape.to_vec(), 23, blocks));
            return Ok(stored);
        }
        let tensor = Tensor::from_slice(numbers, shape, &Device::Cpu)?;
        let quantised = QTensor::quantize(&tensor, kind)?;
        let stored = quantised.dequantize(&Device::Cpu)?.flatten_all()?.to_vec1::<f32>()?;
        let number = match kind {
            GgmlDType::F32 => 0,
            GgmlDType::F16 => 1,
            GgmlDType::Q4_0 => 2,
            GgmlDType::Q4_1 => 3,
            GgmlDType::Q5_0 => 6,
            GgmlDType::Q5_1 => 7,
            GgmlDType::Q8_0 => 8,
            GgmlDType::Q2K => 10,
            GgmlDType::Q3K => 11,
            GgmlDType::Q4K => 12,
            GgmlDType::Q5K => 13,
            GgmlDType::Q6K => 14,
            GgmlDType::BF16 => 30,
            other => anyhow::bail!("{other:?} isn't written"),
        };
        self.tensors.push((name.to_owned(), shape.to_vec(), number, quantised.data()?.into_owned()));
        Ok(stored.into_iter().map(f64::from).collect())
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        let mut file = b"GGUF".to_vec();
        file.extend(3u32.to_le_bytes());
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            text(&mut file, key);
            write(&mut file, value);
        }
        let mut offset = 0;
        for (name, shape, kind, data) in &self.tensors {
            text(&mut file, name);
            file.extend((shape.len() as u32).to_le_bytes());
            for &extent in shape.iter().rev() {
                file.extend((extent as u64).to_le_bytes());
            }
            file.extend(kind.to_le_bytes());
            file.extend((offset as u64).to_le_bytes());
            offset += data.len().next_multiple_of(ALIGNMENT);
        }
        for (.., data) in &self.tensors {
            file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
            file.extend(data);
        }
        file
    }
}

/// Weight `i` of a block.
fn weight_of_mxfp4(block: &[u8], i: usize) -> f64 {
    let number = block[1 + i % 16] >> (4 * (i / 16)) & 15;
    let magnitude = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(number & 7)];
    let scale = 2f64.powi(i32::from(block[0]) - 127);
    if number < 8 { scale * magnitude } else { -scale * magnitude }
}

/// Blocks of IQ4_XS and the weights that they stand for: of each 32 numbers, the nearest of 16 values by a scale of six bits.
fn iq4_xs(numbers: &[f32]) -> (Vec<u8>, Vec<f64>) {
    const VALUES: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    let largest = |numbers: &[f32]| numbers.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let (mut blocks, mut stored) = (Vec::new(), Vec::new());
    for numbers in numbers.chunks(256) {
        let d = f16::from_f32(largest(numbers) / 113.0 / 31.0);
        let (mut high, mut low, mut places) = (0u16, 0u32, [0u8; 128]);
        for (t, numbers) in numbers.chunks(32).enumerate() {
            // Some scales are negative.
            let size = (largest(numbers) / 113.0 / d.to_f32()).round().clamp(1.0, 31.0) as i32;
            let scale = if t % 3 == 1 { -size } else { size };
            let bits = (scale + 32) as u32;
            high |= (bits as u16 >> 4) << (2 * t);
            low |= (bits & 15) << (4 * t);
            for (i, &x) in numbers.iter().enumerate() {
                let weight = |value: i8| d.to_f64() * f64::from(scale) * f64::from(value);
                let error = |place: &usize| (weight(VALUES[*place]) - f64::from(x)).abs();
                let nearest = (0..16).min_by(|a, b| error(a).total_cmp(&error(b))).unwrap_or(0);
                places[16 * t + i % 16] |= (nearest as u8) << (4 * (i / 16));
                stored.push(weight(VALUES[nearest]));
            }
        }
        blocks.extend(d.to_le_bytes());
        blocks.extend(high.to_le_bytes());
        blocks.extend(low.to_le_bytes());
        blocks.extend(places);
    }
    (blocks, stored)
}

fn text(file: &mut Vec<u8>, text: &str) {
    file.extend((text.len() as u64).to_le_bytes());
    file.extend(text.bytes());
}

fn write(file: &mut Vec<u8>, value: &Value) {
    match value {
        Value::U32(x) => {
            file.extend(4u32.to_le_bytes());
            file.extend(x.to_le_bytes());
        }
        Value::F32(x) => {
            file.extend(6u32.to_le_bytes());
            file.extend(x.to_le_bytes());
        }
        Value::Bool(x) => {
            file.extend(7u32.to_le_bytes());
            file.push(u8::from(*x));
        }
        Value::Text(x) => {
            file.extend(8u32.to_le_bytes());
            text(file, x);
        }
    }
}
