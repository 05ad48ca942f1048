//! What the recurrent operators have in common.

use std::ops::Range;

use backend_api::desc::{Bias, BiasAxis, CopyDesc, MatmulDesc, Matrix};
use backend_api::{BackendTranspose, BinaryOp, CompareOp};

use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::numbers::Numbers;
use crate::ops::movement::permute;
use crate::ops::shape::{listed_elements, packed_strides};
use crate::ops::{Call, Device};
use crate::tensor::Tensor;

/// A layer of one or two directions, which are computed side by side: what walks backwards is given the
/// sequence in reverse order, and its outputs are put back in order at the end. States are `[directions,
/// batch, hidden]`, outputs `[steps, directions, batch, hidden]`, gates `[directions, steps, batch, gates ·
/// hidden]`.
pub(super) struct Layer<'a> {
    pub(super) d: Device<'a>,
    pub(super) steps: usize,
    call: &'a Call<'a>,
    /// The input of each direction, `[steps, batch, features]`.
    inputs: Vec<Tensor>,
    weights: &'a Tensor,
    recurrent: &'a Tensor,
    bias: Option<&'a Tensor>,
    /// Whether each direction walks backwards.
    backwards: Vec<bool>,
    /// Whether a step of the order in which they are computed is within a sequence, `[steps, directions,
    /// batch, 1]`; `None` if all are.
    within: Option<Tensor>,
    /// Whether the batch comes first in the node's tensors.
    by_batch: bool,
    gates: usize,
    batch: usize,
    features: usize,
    hidden: usize,
}

impl<'a> Layer<'a> {
    /// The layer of a node whose weights have rows for `gates` gates.
    pub(super) fn new(call: &'a Call<'a>, gates: usize) -> Result<Self> {
        let (d, node) = (call.device(), call.node);
        let (x, weights, recurrent, bias) =
            (call.input(0)?, call.input(1)?, call.input(2)?, call.optional(3));
        let by_batch = node.int("layout", 0) == 1;
        let x = if by_batch { d.packed(&permute(call, x, &[1, 0, 2])?)? } else { x.clone() };
        let backwards = match node.text("direction") {
            "reverse" => vec![true],
            "bidirectional" => vec![false, true],
            _ => vec![false],
        };
        let wrong = || {
            let shapes = [&x.shape, &weights.shape, &recurrent.shape];
            Error::invalid(format!("a sequence and weights of the shapes {shapes:?}"))
        };
        let (&[steps, batch, features], &[.., hidden]) = (x.shape.as_slice(), recurrent.shape.as_slice())
        else {
            return Err(wrong());
        };
        let (count, rows) = (backwards.len(), gates * hidden);
        let is_fit = weights.shape == [count, rows, features] && recurrent.shape == [count, rows, hidden];
        if !is_fit || bias.is_some_and(|bias| bias.shape != [count, 2 * rows]) {
            return Err(wrong());
        }
        let back = Tensor::vector((0..steps as i64).rev().collect());
        let input = |&back_too: &bool| if back_too { d.select(&x, 0, &back) } else { Ok(x.clone()) };
        let inputs = backwards.iter().map(input).collect::<Result<_>>()?;
        let within = match call.optional(4) {
            Some(lengths) => Some(within(d, lengths, &backwards, [steps, batch])?),
            None => None,
        };
        let layer = Self {
            d,
            steps,
            call,
            inputs,
            weights,
            recurrent,
            bias,
            backwards,
            within,
            by_batch,
            gates,
            batch,
            features,
            hidden,
        };
        Ok(layer)
    }

    const fn directions(&self) -> usize {
        self.backwards.len()
    }

    fn kind(&self) -> Kind {
        self.weights.kind
    }

    /// Memory for `count` gates of every step.
    pub(super) fn gates(&self, count: usize) -> Result<Tensor> {
        self.d.empty(self.kind(), &[self.directions(), self.steps, self.batch, count * self.hidden])
    }

    /// Memory for the output of every step.
    pub(super) fn outputs(&self) -> Result<Tensor> {
        self.d.empty(self.kind(), &[self.steps, self.directions(), self.batch, self.hidden])
    }

    /// A state before the first step: an input, else zeros.
    pub(super) fn state(&self, input: usize) -> Result<Tensor> {
        let shape = [self.directions(), self.batch, self.hidden];
        let Some(given) = self.call.optional(input) else {
            return self.d.expand(&self.zero()?, &shape);
        };
        let given = if self.by_batch { permute(self.call, given, &[1, 0, 2])? } else { given.clone() };
        if given.shape == shape {
            self.d.packed(&given)
        } else {
            Err(Error::invalid(format!("a first state {:?} where {shape:?} belongs", given.shape)))
        }
    }

    fn zero(&self) -> Result<Tensor> {
        Tensor::host(self.kind(), vec![1], Numbers::Float(vec![0.0]))
    }

    /// Weights of the cell for the gates, `[directions, 1, 3 · hidden]`.
    pub(super) fn peepholes(&self, input: usize) -> Result<Option<Tensor>> {
        let shape = vec![self.directions(), 1, 3 * self.hidden];
        self.call.optional(input).map(|weights| weights.reshaped(shape)).transpose()
    }

    /// The bias of some gates in one direction: that of the input, or its sum with that of the state.
    fn bias(&self, direction: usize, rows: &Range<usize>, with_state: bool) -> Result<Option<Tensor>> {
        let Some(bias) = self.bias else { return Ok(None) };
        let part = |which: usize| {
            let start = (2 * direction + which) * self.gates + rows.start;
            self.d.viewed(bias, start * self.hidden, vec![rows.len() * self.hidden], vec![1])
        };
        let of_input = part(0)?;
        Ok(Some(if with_state {
            self.d.binary(BinaryOp::Add, &of_input, &part(1)?)?
        } else {
            self.d.packed(&of_input)?
        }))
    }

    /// Writes the products of every step's input with some gates' weights, and their biases, to the gates from
    /// `first` on. With the bias of the state unless that is added elsewhere.
    pub(super) fn project(
        &self,
        gates: &Tensor,
        first: usize,
        rows: Range<usize>,
        with_state: bool,
    ) -> Result<()> {
        let (d, dtype) = (self.d, self.kind().dtype());
        let width = gates.shape.last().copied().unwrap_or(1).max(1);
        for (k, input) in self.inputs.iter().enumerate() {
            let count = self.steps * self.batch;
            let x = Matrix::new(d.ptr(input)?, dtype, self.features.max(1));
            let start = (k * self.gates + rows.start) * self.hidden * self.features;
            let weights = Matrix::new(d.ptr(self.weights)?, dtype, self.features.max(1)).with_offset(start);
            let start = k * count * width + first * self.hidden;
            let y = Matrix::new(d.ptr(gates)?, dtype, width).with_offset(start);
            let mut desc = MatmulDesc::new(count, rows.len() * self.hidden, self.features, x, weights, y)
                .with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans);
            let bias = self.bias(k, &rows, with_state)?;
            if let Some(bias) = &bias {
                desc = desc.with_bias(Bias { ptr: d.ptr(bias)?, axis: BiasAxis::Column });
            }
            d.backend.matmul(&desc)?;
        }
        Ok(())
    }

    /// Writes the state's bias for a gate, or zeros, to that gate of every step.
    pub(super) fn fill(&self, gates: &Tensor, which: usize) -> Result<()> {
        let d = self.d;
        let to = self.part(gates, which..which + 1)?;
        let (from, start, strides) = match self.bias {
            Some(bias) => {
                let all = self.gates * self.hidden;
                (bias.clone(), all + which * self.hidden, vec![2 * all, 0, 0, 1])
            }
            None => (self.zero()?, 0, vec![0; 4]),
        };
        d.base(&from)?;
        let from = from.viewed(start, to.shape.clone(), strides);
        Ok(d.backend.copy(&CopyDesc::new(from.desc(d.memory)?, to.desc(d.memory)?))?)
    }

    /// Adds the products of a state with some gates' weights to a step's gates from `first` on.
    pub(super) fn add_product(
        &self,
        gates: &Tensor,
        first: usize,
        step: usize,
        state: &Tensor,
        rows: Range<usize>,
    ) -> Result<()> {
        let (d, dtype, hidden) = (self.d, self.kind().dtype(), self.hidden);
        let width = gates.shape.last().copied().unwrap_or(1).max(1);
        let of_state = Matrix::new(d.base(state)?, dtype, hidden.max(1))
            .with_offset(state.offset())
            .with_batch_stride(self.batch * hidden);
        let weights = Matrix::new(d.ptr(self.recurrent)?, dtype, hidden.max(1))
            .with_offset(rows.start * hidden * hidden)
            .with_batch_stride(self.gates * hidden * hidden);
        let sum = Matrix::new(d.ptr(gates)?, dtype, width)
            .with_offset(step * self.batch * width + first * hidden)
            .with_batch_stride(self.steps * self.batch * width);
        let desc = MatmulDesc::new(self.batch, rows.len() * hidden, hidden, of_state, weights, sum)
            .with_transpose(BackendTranspose::NoTrans, BackendTranspose::Trans)
            .with_batch(self.directions())
            .with_scale(1.0, 1.0);
        Ok(d.backend.matmul(&desc)?)
    }

    /// A step's gates, `[directions, batch, gates · hidden]`.
    pub(super) fn gates_at(&self, gates: &Tensor, step: usize) -> Tensor {
        one(gates, 1, step)
    }

    /// A step's outputs, `[directions, batch, hidden]`.
    pub(super) fn output_at(&self, outputs: &Tensor, step: usize) -> Tensor {
        one(outputs, 0, step)
    }

    /// Some gates of those that the last dimension has.
    pub(super) fn part(&self, all: &Tensor, which: Range<usize>) -> Result<Tensor> {
        let mut shape = all.shape.clone();
        let last = shape.last_mut().ok_or_else(|| Error::invalid("gates without dimensions"))?;
        *last = which.len() * self.hidden;
        Ok(all.viewed(all.offset() + which.start * self.hidden, shape, all.strides()))
    }

    /// The next state: in a sequence that has ended before, the one before.
    pub(super) fn kept(&self, step: usize, next: Tensor, before: &Tensor) -> Result<Tensor> {
        match &self.within {
            Some(within) => self.d.choose(&one(within, 0, step), &next, before),
            None => Ok(next),
        }
    }

    /// The outputs of every step, zeros behind a sequence's end, and the last states.
    pub(super) fn finish(&self, mut y: Tensor, states: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let (d, call, shape) = (self.d, self.call, y.shape.clone());
        if call.node.has_output(0) {
            if let Some(within) = &self.within {
                y = d.choose(within, &y, 0.0)?;
            }
            if self.backwards.contains(&true) {
                let count = self.directions();
                let rows = in_order(self.steps, &self.backwards).map(|(k, step)| (step * count + k) as i64);
                let table = y.reshaped(vec![self.steps * count, self.batch * self.hidden])?;
                y = d.select(&table, 0, &Tensor::vector(rows.collect()))?.reshaped(shape)?;
            }
            if self.by_batch {
                y = permute(call, &y, &[2, 0, 1, 3])?;
            }
        }
        let mut outputs = vec![y];
        for state in states {
            outputs.push(if self.by_batch { permute(call, &state, &[1, 0, 2])? } else { state });
        }
        Ok(outputs)
    }
}

/// One index of an axis, which goes.
fn one(all: &Tensor, axis: usize, index: usize) -> Tensor {
    let (mut shape, mut strides) = (all.shape.clone(), packed_strides(&all.shape));
    shape.remove(axis);
    let stride = strides.remove(axis);
    all.viewed(index * stride, shape, strides)
}

/// For each step and each direction, the direction and which step of the sequence comes at that time; it is
/// the time at which that step of the sequence comes, too.
fn in_order(steps: usize, backwards: &[bool]) -> impl Iterator<Item = (usize, usize)> {
    let at =
        move |step: usize| move |(k, &back): (usize, &bool)| (k, if back { steps - 1 - step } else { step });
    (0..steps).flat_map(move |step| backwards.iter().enumerate().map(at(step)))
}

/// Which steps are within the sequences, in the order in which they are computed. Walking backwards, a state
/// stays the first one until the sequence begins with its last element.
fn within(d: Device<'_>, lengths: &Tensor, backwards: &[bool], [steps, batch]: [usize; 2]) -> Result<Tensor> {
    let count = backwards.len();
    listed_elements(&[steps, count])?;
    let times = in_order(steps, backwards).map(|(_, step)| step as i64).collect();
    let times = Tensor::host(lengths.kind, vec![steps, count, 1, 1], Numbers::Int(times))?;
    d.compare(CompareOp::Gt, &lengths.reshaped(vec![batch, 1])?, &times)
}
