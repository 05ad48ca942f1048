//! Operations of the backend as functions of tensors, each into new memory.

use backend_api::desc::{
    AffineDesc, BinaryDesc, ClampDesc, CompareDesc, ConcatDesc, CopyDesc, GatherDesc, IndexShape, PadDesc,
    ReduceDesc, TensorDesc, UnaryDesc, Value, WhereDesc,
};
use backend_api::{BinaryOp, CompareOp, ComputeBackend, ReduceOp, UnaryOp};

use super::shape::{broadcast, packed_strides};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::tensor::{Tensor, elements};
use crate::workspace::Workspace;

/// A backend as operators see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device<'a> {
    /// Where memory comes from.
    pub(crate) memory: Workspace<'a>,
    /// What operations are called on: the backend, or while a graph is captured what records them.
    pub(crate) backend: &'a dyn ComputeBackend,
}

/// What an element-wise operation takes: a tensor or a number.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A number, the same for every element.
    Number(f64),
}

impl<'a> From<&'a Tensor> for Arg<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

impl From<f64> for Arg<'_> {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl<'a> Arg<'a> {
    const fn kind(self) -> Option<Kind> {
        match self {
            Self::Tensor(tensor) => Some(tensor.kind),
            Self::Number(_) => None,
        }
    }

    fn shape(self) -> &'a [usize] {
        match self {
            Self::Tensor(tensor) => &tensor.shape,
            Self::Number(_) => &[],
        }
    }
}

impl Device<'_> {
    /// New memory of arbitrary contents.
    pub(crate) fn empty(&self, kind: Kind, shape: &[usize]) -> Result<Tensor> {
        Tensor::empty(self.memory, kind, shape.to_vec())
    }

    /// A tensor without gaps between its elements.
    pub(crate) fn packed(&self, tensor: &Tensor) -> Result<Tensor> {
        tensor.packed(|| {
            let packed = self.empty(tensor.kind, &tensor.shape)?;
            self.backend.copy(&CopyDesc::new(tensor.desc(self.memory)?, packed.desc(self.memory)?))?;
            Ok(packed)
        })
    }

    /// A tensor in another shape, of as many elements.
    pub(crate) fn reshape(&self, tensor: &Tensor, shape: Vec<usize>) -> Result<Tensor> {
        match tensor.reshaped(shape.clone()) {
            Err(_) if tensor.is_view() => self.packed(tensor)?.reshaped(shape),
            reshaped => reshaped,
        }
    }

    /// Elements at `offset + Σ index·stride` of those that a tensor has or is a view of. They are copied if
    /// those of the innermost dimension aren't adjacent, as most operations read such elements slowly.
    pub(crate) fn viewed(
        &self,
        x: &Tensor,
        offset: usize,
        shape: Vec<usize>,
        strides: Vec<usize>,
    ) -> Result<Tensor> {
        // A broadcast one may have more elements than can be counted.
        elements(&shape)?;
        let innermost = shape.iter().zip(&strides).rev().find(|&(&extent, _)| extent != 1);
        let is_adjacent = innermost.is_none_or(|(_, &stride)| stride == 1);
        // Numbers on the host have to be on the device before a view of them is.
        x.base_ptr(self.memory)?;
        let view = x.viewed(offset, shape, strides);
        if is_adjacent { Ok(view) } else { self.packed(&view) }
    }

    /// The handle of a tensor's elements.
    pub(crate) fn ptr(&self, tensor: &Tensor) -> Result<u64> {
        tensor.ptr(self.memory)
    }

    /// The handle of the elements that a tensor has or is a view of.
    pub(crate) fn base(&self, tensor: &Tensor) -> Result<u64> {
        tensor.base_ptr(self.memory)
    }

    /// The handle of a tensor that may be left out.
    pub(crate) fn optional(&self, tensor: Option<&Tensor>) -> Result<Option<u64>> {
        tensor.map(|tensor| self.ptr(tensor)).transpose()
    }

    /// The handle of a tensor of exactly so many elements: a longer one would be no error of the backend's.
    pub(crate) fn sized(&self, tensor: &Tensor, count: usize) -> Result<u64> {
        if tensor.count() == count {
            self.ptr(tensor)
        } else {
            Err(Error::invalid(format!("{:?} where {count} numbers belong", tensor.shape)))
        }
    }

    /// The handle of a tensor of exactly so many elements, which may be left out.
    pub(crate) fn optional_sized(&self, tensor: Option<&Tensor>, count: usize) -> Result<Option<u64>> {
        tensor.map(|tensor| self.sized(tensor, count)).transpose()
    }

    fn value<'t>(&self, arg: Arg<'t>) -> Result<Value<'t>> {
        Ok(match arg {
            // A number on the host needs no memory.
            Arg::Tensor(tensor) if tensor.is_on_host() && tensor.count() == 1 && tensor.rank() == 0 => {
                Value::Scalar(tensor.numbers()?.floats().first().copied().unwrap_or(0.0))
            }
            Arg::Tensor(tensor) => tensor.desc(self.memory)?.into(),
            Arg::Number(number) => number.into(),
        })
    }

    /// `op(x)`.
    pub(crate) fn unary(&self, op: UnaryOp, x: &Tensor) -> Result<Tensor> {
        let y = self.empty(x.kind, &x.shape)?;
        self.backend.unary_ext(&UnaryDesc::new(op, x.desc(self.memory)?, y.desc(self.memory)?))?;
        Ok(y)
    }

    /// `op(x)` with the parameters α and β.
    pub(crate) fn unary_with(&self, op: UnaryOp, x: &Tensor, parameters: [f64; 2]) -> Result<Tensor> {
        let y = self.empty(x.kind, &x.shape)?;
        self.unary_to(op, x, parameters, &y)?;
        Ok(y)
    }

    /// `op(x)` with the parameters α and β, written to `y`, whose elements as they are nobody reads afterwards.
    pub(crate) fn unary_to(
        &self,
        op: UnaryOp,
        x: &Tensor,
        [alpha, beta]: [f64; 2],
        y: &Tensor,
    ) -> Result<()> {
        let desc = UnaryDesc::new(op, x.desc(self.memory)?, y.desc(self.memory)?);
        Ok(self.backend.unary_ext(&desc.with_alpha(alpha).with_beta(beta))?)
    }

    /// `op(a, b)` with broadcasting.
    pub(crate) fn binary<'t>(
        &self,
        op: BinaryOp,
        a: impl Into<Arg<'t>>,
        b: impl Into<Arg<'t>>,
    ) -> Result<Tensor> {
        let (a, b) = (a.into(), b.into());
        let kind = a.kind().or(b.kind()).unwrap_or(Kind::F32);
        let y = self.empty(kind, &broadcast(a.shape(), b.shape())?)?;
        self.binary_to(op, a, b, &y)?;
        Ok(y)
    }

    /// `op(a, b)` with broadcasting, written to `y`, whose elements as they are nobody reads afterwards.
    pub(crate) fn binary_to<'t>(
        &self,
        op: BinaryOp,
        a: impl Into<Arg<'t>>,
        b: impl Into<Arg<'t>>,
        y: &Tensor,
    ) -> Result<()> {
        let (a, b) = (self.value(a.into())?, self.value(b.into())?);
        Ok(self.backend.binary_ext(&BinaryDesc::new(op, a, b, y.desc(self.memory)?))?)
    }

    /// 1 where the comparison holds, else 0.
    pub(crate) fn compare<'t>(
        &self,
        op: CompareOp,
        a: impl Into<Arg<'t>>,
        b: impl Into<Arg<'t>>,
    ) -> Result<Tensor> {
        let (a, b) = (a.into(), b.into());
        let y = self.empty(Kind::Bool, &broadcast(a.shape(), b.shape())?)?;
        self.backend.compare(&CompareDesc::new(op, self.value(a)?, self.value(b)?, y.desc(self.memory)?))?;
        Ok(y)
    }

    /// `a` where the condition holds, else `b`.
    pub(crate) fn choose<'t>(
        &self,
        condition: &Tensor,
        a: impl Into<Arg<'t>>,
        b: impl Into<Arg<'t>>,
    ) -> Result<Tensor> {
        let (a, b) = (a.into(), b.into());
        let kind = a.kind().or(b.kind()).unwrap_or(Kind::F32);
        let y = self.empty(kind, &broadcast(&condition.shape, &broadcast(a.shape(), b.shape())?)?)?;
        let condition = condition.desc(self.memory)?;
        self.backend.where_cond(&WhereDesc::new(
            condition,
            self.value(a)?,
            self.value(b)?,
            y.desc(self.memory)?,
        ))?;
        Ok(y)
    }

    /// `min(max(x, min), max)`.
    pub(crate) fn clamp(&self, x: &Tensor, min: f64, max: f64) -> Result<Tensor> {
        let y = self.empty(x.kind, &x.shape)?;
        self.backend.clamp(&ClampDesc::new(x.desc(self.memory)?, y.desc(self.memory)?, min, max))?;
        Ok(y)
    }

    /// `scale · x + bias`.
    pub(crate) fn affine(&self, x: &Tensor, scale: f64, bias: f64) -> Result<Tensor> {
        let y = self.empty(x.kind, &x.shape)?;
        self.backend.affine(&AffineDesc::new(x.desc(self.memory)?, y.desc(self.memory)?, scale, bias))?;
        Ok(y)
    }

    /// The numbers in another element type.
    pub(crate) fn convert(&self, x: &Tensor, kind: Kind) -> Result<Tensor> {
        if x.kind == kind {
            return Ok(x.clone());
        }
        let y = self.empty(kind, &x.shape)?;
        self.backend.copy(&CopyDesc::new(x.desc(self.memory)?, y.desc(self.memory)?))?;
        Ok(y)
    }

    /// Elements of `x` at `offset + Σ index·stride`, as a packed tensor.
    pub(crate) fn strided(
        &self,
        x: &Tensor,
        offset: usize,
        shape: &[usize],
        strides: &[usize],
    ) -> Result<Tensor> {
        let y = self.empty(x.kind, shape)?;
        let base = self.ptr(x)?;
        let from = TensorDesc::strided(base, x.kind.dtype(), shape, strides).with_offset(offset);
        self.backend.copy(&CopyDesc::new(from, y.desc(self.memory)?))?;
        Ok(y)
    }

    /// `x` in another shape to which it is broadcast.
    pub(crate) fn expand(&self, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
        if x.shape == shape {
            return Ok(x.clone());
        }
        let x = &self.packed(x)?;
        self.strided(x, 0, shape, &expanded_strides(&x.shape, &packed_strides(&x.shape), shape)?)
    }

    /// The slices that `indices` name along an axis.
    pub(crate) fn select(&self, x: &Tensor, axis: usize, indices: &Tensor) -> Result<Tensor> {
        let mut shape = x.shape.clone();
        let rows = *shape.get(axis).ok_or_else(|| Error::invalid("the axis is too large"))?;
        shape.splice(axis..=axis, indices.shape.iter().copied());
        let y = self.empty(x.kind, &shape)?;
        let [outer, columns] = x.around(axis);
        let of = IndexShape { rows, columns, count: indices.count() };
        let desc = GatherDesc::new(x.kind.dtype(), self.ptr(x)?, self.ptr(indices)?, self.ptr(&y)?, of);
        self.backend.gather(&desc.with_outer(outer))?;
        Ok(y)
    }

    /// A reduction, whose dimensions stay as ones.
    pub(crate) fn reduce(&self, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<Tensor> {
        let mut shape = x.shape.clone();
        for &axis in axes {
            *shape.get_mut(axis).ok_or_else(|| Error::invalid("the axis is too large"))? = 1;
        }
        let y = self.empty(if op.is_index() { Kind::I64 } else { x.kind }, &shape)?;
        self.backend.reduce_ext(&ReduceDesc::new(op, x.desc(self.memory)?, axes, self.ptr(&y)?))?;
        Ok(y)
    }

    /// The tensors one after the other along an axis.
    pub(crate) fn concat(&self, parts: &[&Tensor], axis: usize) -> Result<Tensor> {
        let first = parts.first().ok_or_else(|| Error::invalid("nothing to concatenate"))?;
        let mut shape = first.shape.clone();
        let extent = parts.iter().map(|part| part.shape.get(axis).copied().unwrap_or(0)).sum();
        *shape.get_mut(axis).ok_or_else(|| Error::invalid("the axis is too large"))? = extent;
        let y = self.empty(first.kind, &shape)?;
        let parts = parts.iter().map(|part| part.desc(self.memory)).collect::<Result<Vec<_>>>()?;
        self.backend.concat(&ConcatDesc::new(&parts, y.desc(self.memory)?, axis))?;
        Ok(y)
    }

    /// `value` around `x`, which begins at `before` in a tensor of `shape`.
    pub(crate) fn pad(&self, x: &Tensor, shape: &[usize], before: &[usize], value: f64) -> Result<Tensor> {
        let y = self.empty(x.kind, shape)?;
        self.backend.pad(&PadDesc::new(x.desc(self.memory)?, y.desc(self.memory)?, before, value))?;
        Ok(y)
    }
}

/// Strides with which a tensor of `from` is read as one of `to`: 0 where it is repeated.
pub(crate) fn expanded_strides(from: &[usize], strides: &[usize], to: &[usize]) -> Result<Vec<usize>> {
    let missing = to.len().checked_sub(from.len());
    let missing = missing.ok_or_else(|| Error::invalid(format!("{from:?} can't be expanded to {to:?}")))?;
    let mut expanded = vec![0; missing];
    for ((&extent, &stride), &wanted) in from.iter().zip(strides).zip(to.iter().skip(missing)) {
        match extent {
            1 => expanded.push(0),
            _ if extent == wanted => expanded.push(stride),
            _ => return Err(Error::invalid(format!("{from:?} can't be expanded to {to:?}"))),
        }
    }
    Ok(expanded)
}
