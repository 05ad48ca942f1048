//! Buffers from the command line.

use std::path::PathBuf;
use std::str::FromStr;

use backend_api::{DType, random};
use half::f16;

use crate::failure::Failure;
use crate::files;
use crate::params::checked;

/// Bytes of one buffer, at most: what is filled here has to fit in the host's memory.
const MAX_BYTES: usize = 8 << 30;

/// A buffer as `--bind` describes it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operand {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    content: Content,
    /// Whether it is printed.
    pub(crate) is_output: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    Number(f64),
    Iota,
    Random,
    Normal,
    File(PathBuf),
}

impl FromStr for Operand {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(3, ':');
        let mut part = || parts.next().ok_or("expected TYPE:SHAPE:CONTENT, such as f32:1024x1024:random");
        let [dtype, shape, content] = [part()?, part()?, part()?];
        let (content, is_output) = match content.strip_suffix(":out") {
            Some(content) => (content, true),
            None => (content, false),
        };
        let shape: Vec<usize> = shape
            .split('x')
            .map(|size| size.parse().map_err(|_| format!("{size:?} is no size")))
            .collect::<Result<_, _>>()?;
        let dtype = self::dtype(dtype)?;
        let elements = shape.iter().try_fold(dtype.size(), |product, &size| product.checked_mul(size));
        if elements.is_none_or(|bytes| bytes > MAX_BYTES) {
            return Err(format!("a buffer has at most {MAX_BYTES} bytes"));
        }
        let content = match content {
            "zeros" => Content::Number(0.0),
            "ones" => Content::Number(1.0),
            "iota" => Content::Iota,
            "random" => Content::Random,
            "normal" => Content::Normal,
            other => match other.strip_prefix('@') {
                Some(path) => Content::File(path.into()),
                None if other.trim().parse::<f64>().is_ok() => Content::Number(checked(other, dtype)?),
                None => {
                    let known = "zeros, ones, iota, random, normal, a number and @FILE";
                    return Err(format!("{other:?} is none of {known}"));
                }
            },
        };
        Ok(Self { dtype, shape, content, is_output })
    }
}

/// The type of this name.
pub(crate) fn dtype(name: &str) -> Result<DType, String> {
    let all = [DType::F32, DType::F16, DType::I32, DType::U32];
    all.into_iter()
        .find(|dtype| dtype.name() == name)
        .ok_or_else(|| format!("{name:?} is none of f32, f16, i32, u32"))
}

impl Operand {
    pub(crate) fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The bytes of all elements.
    pub(crate) fn byte_len(&self) -> usize {
        self.elements() * self.dtype.size()
    }

    /// The bytes that the buffer begins with. Random floating-point numbers are uniform in [-1, 1) or normal,
    /// random integers between 0, or for i32 -100, and 100.
    pub(crate) fn bytes(&self, seed: u64) -> Result<Vec<u8>, Failure> {
        let count = self.elements();
        if let Content::File(path) = &self.content {
            let whose = format!("the shape {:?} has", self.shape);
            return files::read(path, self.byte_len(), &whose).map_err(Failure::usage);
        }
        let mut bytes = Vec::with_capacity(self.byte_len());
        let mut block = [0.0; 4];
        for index in 0..count {
            let number = match self.content {
                Content::Number(number) => number,
                Content::Iota => index as f64,
                _ => {
                    if index % 4 == 0 {
                        let words = random::philox_block(seed, index as u64 / 4);
                        block = match self.content {
                            Content::Normal => random::normals(words).map(f64::from),
                            _ => random::uniforms(words).map(|x| 2.0 * f64::from(x) - 1.0),
                        };
                    }
                    match self.dtype {
                        DType::I32 => (block[index % 4] * 100.0).round(),
                        DType::U32 => (block[index % 4] * 100.0).round().abs(),
                        _ => block[index % 4],
                    }
                }
            };
            push(&mut bytes, self.dtype, number);
        }
        Ok(bytes)
    }
}

/// Appends a number as an element of a type.
pub(crate) fn push(bytes: &mut Vec<u8>, dtype: DType, number: f64) {
    match dtype {
        DType::F16 => bytes.extend(f16::from_f64(number).to_le_bytes()),
        DType::I32 => bytes.extend((number as i32).to_le_bytes()),
        DType::U32 => bytes.extend((number as u32).to_le_bytes()),
        _ => bytes.extend((number as f32).to_le_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use backend_api::support::numbers;

    use super::*;

    fn filled(spec: &str) -> Vec<f64> {
        let operand: Operand = spec.parse().unwrap();
        let Ok(bytes) = operand.bytes(7) else { panic!("{spec}") };
        assert_eq!(bytes.len(), operand.elements() * operand.dtype.size());
        numbers(operand.dtype, &bytes).collect()
    }

    #[test]
    fn contents_are_of_their_type() {
        assert_eq!(filled("f16:3:iota"), [0.0, 1.0, 2.0]);
        assert_eq!(filled("i32:2x1:-7"), [-7.0, -7.0]);
        assert_eq!(filled("u32:2:ones:out"), [1.0, 1.0]);
        let random = filled("f32:1000:random");
        assert!(random.iter().all(|x| (-1.0..1.0).contains(x)) && random.iter().any(|&x| x < -0.9));
        assert!(filled("u32:100:random").iter().all(|&x| (0.0..=100.0).contains(&x)));
        assert!(filled("f32:1000:normal").iter().any(|&x| x > 1.5));
    }

    #[test]
    fn numbers_that_a_type_cannot_hold_are_refused() {
        for spec in [
            "u32:64:-1",
            "u32:4:1.9",
            "u32:4:4294967296",
            "u32:4:nan",
            "i32:4:2147483648",
            "i32:4:0.5",
            "i32:4:inf",
            "f16:4:100000",
            "f32:4:1e39",
        ] {
            assert!(spec.parse::<Operand>().is_err(), "{spec}");
        }
        assert_eq!(filled("u32:1:4294967295"), [4_294_967_295.0]);
        assert_eq!(filled("i32:1:-2147483648"), [-2_147_483_648.0]);
        assert_eq!(filled("f16:1:65504"), [65504.0]);
        assert_eq!(filled("f16:1:-inf"), [f64::NEG_INFINITY]);
        assert!(filled("f32:1:nan")[0].is_nan());
    }

    #[test]
    fn wrong_specs_are_refused() {
        for spec in
            ["", "f32", "f32:4", "f64:4:zeros", "f32:4y:zeros", "f32:4:nothing", "f32:99999999999x9:zeros"]
        {
            assert!(spec.parse::<Operand>().is_err(), "{spec}");
        }
    }
}
