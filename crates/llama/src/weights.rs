//! Weights on their way from the file to the device.

mod dense;
mod experts;
mod filling;
mod pairs;
mod planes;
mod taken;
mod weight;

use std::collections::BTreeSet;
use std::sync::Arc;

use backend_api::desc::{Matrix, QuantMatmulDesc, QuantMatrix};
use backend_api::owned::Buffer;
use backend_api::quant::{QuantFormat, QuantLayout};
use backend_api::{BackendError, ComputeBackend, DType, ErrorKind, MaybeSync};

use crate::gguf::{Gguf, Tensor, TensorType};
use crate::precision::Precision;
use crate::{Error, Result};
pub(crate) use dense::upload;
pub use filling::Filling;
pub(crate) use pairs::NeighbouringPairs;
use planes::Rows;
pub(crate) use taken::refuse_others;
pub(crate) use weight::{Storage, Weight};

/// A file's tensors and the device that they go to. Vectors are uploaded as they are asked for; matrices are allocated, and filled
/// by what [`finish`](Self::finish) returns.
pub(crate) struct Loader<'a> {
    pub(crate) backend: &'a Arc<dyn ComputeBackend>,
    file: &'a Gguf<'a>,
    /// The type of vectors, and of matrices that are read with them.
    dtype: DType,
    has_f16: bool,
    has_quant: bool,
    /// Names of the tensors that were read.
    taken: BTreeSet<String>,
    filling: Filling<'a>,
}

impl<'a> Loader<'a> {
    pub(crate) fn new(
        backend: &'a Arc<dyn ComputeBackend>,
        file: &'a Gguf<'a>,
        precision: Precision,
    ) -> Result<Self> {
        let all = file.tensors().fold(0usize, |sum, (_, tensor)| sum.saturating_add(tensor.data.len()));
        let (has_f16, has_quant) = (backend.capabilities()?.f16, has_quant(backend.as_ref())?);
        let dtype = precision.operands();
        if dtype == DType::F16 && !has_f16 {
            let need =
                "a device with f16 for activations of f16; --precision f32 (`Precision::F32`) does without"
                    .to_owned();
            return Err(BackendError::Unsupported { op: "load", need }.into());
        }
        let (taken, filling) = (BTreeSet::new(), Filling::new(all));
        Ok(Self { backend, file, dtype, has_f16, has_quant, taken, filling })
    }

    /// The type of activations but the residual stream.
    pub(crate) const fn dtype(&self) -> DType {
        self.dtype
    }

    /// What was read, and what matrices lack.
    pub(crate) fn finish(self) -> (BTreeSet<String>, Filling<'a>) {
        (self.taken, self.filling)
    }

    /// Whether the file has a tensor of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.file.tensor(name).is_some()
    }

    /// Refuses a file without this tensor.
    pub(crate) fn require(&self, name: &str) -> Result<()> {
        if self.has(name) { Ok(()) } else { Err(Error::MissingTensor { name: name.to_owned() }) }
    }

    fn find(&mut self, name: &str, shape: &[usize]) -> Result<&'a Tensor<'a>> {
        let Some(tensor) = self.file.tensor(name) else {
            return Err(Error::MissingTensor { name: name.to_owned() });
        };
        if tensor.shape == shape {
            self.taken.insert(name.to_owned());
            return Ok(tensor);
        }
        let (expected, got) = (format!("{shape:?}"), format!("{:?}", tensor.shape));
        Err(Error::Tensor { name: name.to_owned(), expected, got })
    }

    /// The vector `name` of `len` numbers.
    pub(crate) fn vector(&mut self, name: &str, len: usize) -> Result<Buffer> {
        let numbers = self.numbers(name, &[len])?;
        self.upload(self.dtype, &numbers)
    }

    /// [`vector`](Self::vector), if the file has it or if it is `required`.
    pub(crate) fn vector_if(&mut self, required: bool, name: &str, len: usize) -> Result<Option<Buffer>> {
        if required || self.has(name) { self.vector(name, len).map(Some) } else { Ok(None) }
    }

    /// The vector `name` as f32, the type of the residual stream, which weights of its norms have, too.
    pub(crate) fn f32_vector(&mut self, name: &str, len: usize) -> Result<Buffer> {
        let numbers = self.numbers(name, &[len])?;
        self.upload(DType::F32, &numbers)
    }

    /// [`f32_vector`](Self::f32_vector), if the file has it or if it is `required`.
    pub(crate) fn f32_vector_if(&mut self, required: bool, name: &str, len: usize) -> Result<Option<Buffer>> {
        if required || self.has(name) { self.f32_vector(name, len).map(Some) } else { Ok(None) }
    }

    /// Vectors one after the other as `dtype`, times a factor, zeros in place of those that the file lacks; `None` if it lacks
    /// all. Where an order and the first of its rows are given, their elements are put in it.
    pub(crate) fn stacked_vectors(
        &mut self,
        parts: &[(String, usize)],
        (dtype, scale): (DType, f64),
        order: Option<(NeighbouringPairs, usize)>,
    ) -> Result<Option<Buffer>> {
        if !parts.iter().any(|(name, _)| self.has(name)) {
            return Ok(None);
        }
        let mut numbers = Vec::new();
        for (name, len) in parts {
            numbers.extend(if self.has(name) { self.numbers(name, &[*len])? } else { vec![0.0; *len] });
        }
        if let Some((order, first)) = order {
            numbers = order.arranged(first, 1, &numbers);
        }
        numbers.iter_mut().for_each(|number| *number = (scale * f64::from(*number)) as f32);
        self.upload(dtype, &numbers).map(Some)
    }

    fn upload(&self, dtype: DType, numbers: &[f32]) -> Result<Buffer> {
        let buffer = Buffer::of(self.backend, dtype, &[numbers.len()])?;
        dense::upload(&buffer, dtype, numbers)?;
        Ok(buffer)
    }

    fn numbers(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>> {
        let tensor = self.find(name, shape)?;
        let numbers = dense::to_f32(tensor).ok_or_else(|| unsupported(name, tensor))?;
        self.filling.note_done(tensor.data.len());
        Ok(numbers)
    }

    /// How the matrix `name` is stored in the file.
    pub(crate) fn kind(&self, name: &str) -> Result<TensorType> {
        let tensor = self.file.tensor(name);
        tensor.map(|tensor| tensor.kind).ok_or_else(|| Error::MissingTensor { name: name.to_owned() })
    }

    /// Matrices of one type, by name and rows, stacked into one. Where an order and the first of its rows are given, their
    /// rows are put in it.
    pub(crate) fn stacked_matrices(
        &mut self,
        parts: &[(String, usize)],
        columns: usize,
        order: Option<(NeighbouringPairs, usize)>,
    ) -> Result<Weight> {
        let mut tensors = Vec::new();
        for (name, rows) in parts {
            tensors.push(self.find(name, &[*rows, columns])?);
        }
        let rows = parts.iter().map(|(_, rows)| rows).sum();
        let kind = tensors.first().map(|tensor| tensor.kind);
        let (buffer, storage) = match kind.and_then(TensorType::quant_format).filter(|_| self.has_quant) {
            Some(format) => {
                let stack: Vec<Rows<'_>> = tensors.iter().map(|tensor| Rows::of(tensor)).collect();
                let file_row =
                    move |row| order.map_or(row, |(order, first)| order.row_at(first + row) - first);
                let row = move |row| Rows::of_stack(&stack, file_row(row));
                (self.planes(format, [rows, columns], row)?, Storage::Quant(format))
            }
            None => {
                let is_half = self.dtype == DType::F16 || kind == Some(TensorType::F16) && self.has_f16;
                let dtype = if is_half { DType::F16 } else { DType::F32 };
                for ((name, _), tensor) in parts.iter().zip(&tensors) {
                    if !dense::is_read(tensor.kind) && tensor.kind.quant_format().is_none() {
                        return Err(unsupported(name, tensor));
                    }
                }
                (self.dense(tensors, dtype, [rows, columns], order)?, Storage::Dense(dtype))
            }
        };
        Ok(Weight::new(buffer, storage, [rows, columns]))
    }

    /// Memory for a matrix in planes, to be filled with the blocks `row(i)`.
    fn planes(
        &mut self,
        format: QuantFormat,
        [rows, columns]: [usize; 2],
        row: impl Fn(usize) -> &'a [u8] + MaybeSync + 'a,
    ) -> Result<Buffer> {
        let layout = QuantLayout::new("load", format, rows, columns)?;
        let buffer = Buffer::new::<u8>(self.backend, &[layout.bytes])?;
        let bytes = row(0).len().saturating_mul(rows);
        self.filling.add(&buffer, bytes, move |buffer| planes::fill(buffer, &layout, rows, &row))?;
        Ok(buffer)
    }

    /// Memory for stacked matrices as plain numbers, in an order as [`stacked_matrices`](Self::stacked_matrices) has them.
    fn dense(
        &mut self,
        tensors: Vec<&'a Tensor<'a>>,
        dtype: DType,
        shape: [usize; 2],
        order: Option<(NeighbouringPairs, usize)>,
    ) -> Result<Buffer> {
        let buffer = Buffer::of(self.backend, dtype, &shape)?;
        let bytes = tensors.iter().map(|tensor| tensor.data.len()).sum();
        self.filling
            .add(&buffer, bytes, move |buffer| dense::fill(buffer, &tensors, dtype, shape[1], order))?;
        Ok(buffer)
    }

    /// The vector `name` of `columns` numbers, as a matrix of one row.
    pub(crate) fn row(&mut self, name: &str, columns: usize) -> Result<Weight> {
        let (buffer, storage) = (self.vector(name, columns)?, Storage::Dense(self.dtype));
        Ok(Weight::new(buffer, storage, [1, columns]))
    }

    /// One matrix.
    pub(crate) fn matrix(&mut self, name: &str, rows: usize, columns: usize) -> Result<Weight> {
        self.stacked_matrices(&[(name.to_owned(), rows)], columns, None)
    }
}

fn unsupported(name: &str, tensor: &Tensor<'_>) -> Error {
    let formats = QuantFormat::GGUF.map(|format| format.name().to_uppercase()).join(", ");
    let expected = format!("one of F32, F16, BF16, {formats}");
    Error::Tensor { name: name.to_owned(), expected, got: tensor.kind.to_string() }
}

/// Whether a backend multiplies by quantised matrices; where it doesn't, they are kept as f32. A product
/// without rows looks at no memory.
fn has_quant(backend: &dyn ComputeBackend) -> Result<bool> {
    let columns = QuantFormat::Q8_0.block_elements();
    let row = Matrix::new(0, DType::F32, columns);
    let weights = QuantMatrix::new(0, QuantFormat::Q8_0, 0, columns);
    match backend.quant_matmul(&QuantMatmulDesc::new(0, row, weights, row)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
        Err(error) => Err(error.into()),
    }
}
