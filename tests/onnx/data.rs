//! The cases that `export.py` wrote.

use std::collections::HashMap;
use std::path::Path;

use backend_api::DType;
use half::f16;
use libtest_mimic::Failed;
use serde::Deserialize;

/// What `export.py` wrote.
#[derive(Debug, Deserialize)]
pub(crate) struct Suite {
    /// The package that the cases are from.
    pub(crate) source: String,
    pub(crate) cases: Vec<Case>,
    /// Cases with f32 among types that no operation has.
    pub(crate) others: Vec<Other>,
    #[serde(skip)]
    tensors: Vec<u8>,
}

/// One node with its inputs and what they give.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) operator: String,
    pub(crate) attributes: HashMap<String, serde_json::Value>,
    /// `None` for one that the node leaves out.
    pub(crate) inputs: Vec<Option<Array>>,
    pub(crate) outputs: Vec<Option<Array>>,
}

/// A case that is not run.
#[derive(Debug, Deserialize)]
pub(crate) struct Other {
    pub(crate) name: String,
    pub(crate) operator: String,
    pub(crate) types: Vec<String>,
}

/// A tensor of the file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Array {
    pub(crate) dtype: Kind,
    pub(crate) shape: Vec<usize>,
    at: usize,
}

/// An element type of ONNX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    F32,
    F16,
    I32,
    U32,
    I64,
    Bool,
}

impl Kind {
    /// The type that stands for it on a device: indices are i32 there, and truth values u32.
    pub(crate) fn on_device(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
            Self::I32 | Self::I64 => DType::I32,
            Self::U32 | Self::Bool => DType::U32,
        }
    }

    fn size(self) -> usize {
        match self {
            Self::I64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F16 => 2,
            Self::Bool => 1,
        }
    }
}

impl Suite {
    /// Reads the files beside this one.
    pub(crate) fn load() -> Result<Self, Failed> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("onnx");
        let mut suite: Self = serde_json::from_str(&std::fs::read_to_string(folder.join("cases.json"))?)?;
        suite.tensors = std::fs::read(folder.join("tensors.bin"))?;
        Ok(suite)
    }

    /// The numbers of a tensor. All of them are exact in f64.
    pub(crate) fn numbers(&self, array: &Array) -> Result<Vec<f64>, Failed> {
        let size = array.dtype.size();
        let end = array.at + array.shape.iter().product::<usize>() * size;
        let bytes = self.tensors.get(array.at..end).ok_or("the file of tensors is too short")?;
        Ok(bytes.chunks_exact(size).map(|bytes| number(array.dtype, bytes)).collect())
    }
}

fn number(kind: Kind, bytes: &[u8]) -> f64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let half = [word[0], word[1], word[2], word[3]];
    match kind {
        Kind::F32 => f64::from(f32::from_le_bytes(half)),
        Kind::F16 => f64::from(f16::from_le_bytes([word[0], word[1]])),
        Kind::I32 => f64::from(i32::from_le_bytes(half)),
        Kind::U32 => f64::from(u32::from_le_bytes(half)),
        Kind::I64 => i64::from_le_bytes(word) as f64,
        Kind::Bool => f64::from(u8::from(word[0] != 0)),
    }
}
