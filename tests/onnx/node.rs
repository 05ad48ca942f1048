//! A node as an operator sees it: its attributes, and its inputs on the device and on the host.

use backend_api::DType;

use crate::data::{Array, Case, Suite};
use crate::device::{Device, Outcome, Tensor};

pub(crate) struct Node<'a> {
    pub(crate) case: &'a Case,
    pub(crate) device: &'a Device<'a>,
    suite: &'a Suite,
    inputs: Vec<Option<Tensor>>,
}

impl<'a> Node<'a> {
    /// Puts the inputs on the device.
    pub(crate) fn new(suite: &'a Suite, case: &'a Case, device: &'a Device<'a>) -> Outcome<Self> {
        let upload = |array: &Option<Array>| -> Outcome<Option<Tensor>> {
            let Some(array) = array else { return Ok(None) };
            let numbers = suite.numbers(array)?;
            Ok(Some(device.upload(array.dtype.on_device(), &array.shape, &numbers)?))
        };
        Ok(Self { case, device, suite, inputs: case.inputs.iter().map(upload).collect::<Outcome<_>>()? })
    }

    /// An input that has to be there.
    pub(crate) fn input(&self, i: usize) -> Outcome<&Tensor> {
        self.optional(i).ok_or_else(|| format!("no input {i}").into())
    }

    pub(crate) fn optional(&self, i: usize) -> Option<&Tensor> {
        self.inputs.get(i).and_then(Option::as_ref)
    }

    /// All inputs that are there.
    pub(crate) fn all(&self) -> Vec<&Tensor> {
        self.inputs.iter().flatten().collect()
    }

    /// The numbers of an input.
    pub(crate) fn numbers(&self, i: usize) -> Outcome<Option<Vec<f64>>> {
        match self.case.inputs.get(i) {
            Some(Some(array)) => Ok(Some(self.suite.numbers(array)?)),
            _ => Ok(None),
        }
    }

    /// The numbers of an input of integers.
    pub(crate) fn integers(&self, i: usize) -> Outcome<Option<Vec<i64>>> {
        Ok(self.numbers(i)?.map(|numbers| numbers.into_iter().map(|x| x as i64).collect()))
    }

    pub(crate) fn int(&self, name: &str, otherwise: i64) -> i64 {
        self.case.attributes.get(name).and_then(serde_json::Value::as_i64).unwrap_or(otherwise)
    }

    pub(crate) fn float(&self, name: &str, otherwise: f64) -> f64 {
        self.case.attributes.get(name).and_then(serde_json::Value::as_f64).unwrap_or(otherwise)
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.case.attributes.get(name).and_then(serde_json::Value::as_str).unwrap_or_default()
    }

    pub(crate) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        let list = self.case.attributes.get(name)?.as_array()?;
        list.iter().map(serde_json::Value::as_i64).collect()
    }

    /// The attribute `axis` as a dimension of a tensor of this rank.
    pub(crate) fn axis(&self, otherwise: i64, rank: usize) -> Outcome<usize> {
        axis(self.int("axis", otherwise), rank)
    }

    /// The type on the device and the shape of an output.
    pub(crate) fn output(&self, i: usize) -> Outcome<(DType, &[usize])> {
        let array =
            self.case.outputs.get(i).and_then(Option::as_ref).ok_or_else(|| format!("no output {i}"))?;
        Ok((array.dtype.on_device(), &array.shape))
    }
}

/// A dimension that may be counted from the end.
pub(crate) fn axis(axis: i64, rank: usize) -> Outcome<usize> {
    let counted = if axis < 0 { axis + rank as i64 } else { axis };
    usize::try_from(counted)
        .ok()
        .filter(|&axis| axis < rank.max(1))
        .ok_or_else(|| format!("no axis {axis}").into())
}
