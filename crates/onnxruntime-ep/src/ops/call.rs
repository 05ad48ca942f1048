//! A node that is run: its attributes and its inputs.

use backend_api::ComputeBackend;

use super::device::Device;
use super::shape::axis;
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::Node;
use crate::numbers::Numbers;
use crate::tensor::Tensor;
use crate::workspace::Workspace;

/// Tensors of so many numbers are computed on the host where they are there already: fewer than a launch is
/// worth.
pub(super) const FEW: usize = 256;

/// A node and its inputs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// The node.
    pub(crate) node: &'a Node,
    /// Where memory comes from.
    pub(crate) memory: Workspace<'a>,
    /// What operations are called on.
    pub(crate) backend: &'a dyn ComputeBackend,
    /// The inputs in order, `None` for one that is left out.
    pub(crate) inputs: &'a [Option<Tensor>],
}

impl<'a> Call<'a> {
    /// The device.
    pub(crate) const fn device(&self) -> Device<'a> {
        Device { memory: self.memory, backend: self.backend }
    }

    /// An input that has to be there.
    pub(crate) fn input(&self, i: usize) -> Result<&'a Tensor> {
        self.optional(i).ok_or_else(|| Error::invalid(format!("input {i} is missing")))
    }

    /// An input that may be left out.
    pub(crate) fn optional(&self, i: usize) -> Option<&'a Tensor> {
        self.inputs.get(i).and_then(Option::as_ref)
    }

    /// The inputs that are there.
    pub(crate) fn all(&self) -> Vec<&'a Tensor> {
        self.inputs.iter().flatten().collect()
    }

    /// The numbers of an input of shapes, axes or the like.
    pub(crate) fn ints(&self, i: usize) -> Result<Option<Vec<i64>>> {
        self.optional(i).map(Tensor::ints).transpose()
    }

    /// A list that was an attribute in older operator sets and is an input in newer ones.
    pub(crate) fn ints_or(&self, i: usize, attribute: &str) -> Result<Option<Vec<i64>>> {
        match self.ints(i)? {
            Some(numbers) => Ok(Some(numbers)),
            None => Ok(self.node.ints(attribute).map(<[i64]>::to_vec)),
        }
    }

    /// The only number of an input.
    pub(crate) fn number(&self, i: usize) -> Result<Option<f64>> {
        let Some(tensor) = self.optional(i) else { return Ok(None) };
        Ok(tensor.numbers()?.floats().first().copied())
    }

    /// The attribute `axis` as a dimension of a tensor of this rank.
    pub(crate) fn axis(&self, otherwise: i64, rank: usize) -> Result<usize> {
        axis(self.node.int("axis", otherwise), rank)
    }

    /// Whether the inputs are computed with on the host: integers of 64 bits, which only the host has, and
    /// few numbers that are there already.
    pub(crate) fn is_for_host(&self) -> bool {
        let mut inputs = self.inputs.iter().flatten();
        inputs.clone().any(|tensor| tensor.kind == Kind::I64)
            || inputs.all(|tensor| tensor.is_on_host() && tensor.count() <= FEW)
    }
}

/// A tensor of numbers that were computed exactly, or in f64, rounded as its kind stores them.
pub(crate) fn rounded(kind: Kind, shape: Vec<usize>, numbers: Numbers) -> Result<Tensor> {
    Tensor::host(kind, shape, numbers.convert(kind))
}
