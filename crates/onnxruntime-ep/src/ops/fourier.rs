//! Fourier transforms as products with matrices of sines and cosines.

use std::f64::consts::TAU;

use backend_api::{Activation, BackendTranspose, BinaryOp};

use super::call::Call;
use super::matrix::{Epilogue, product};
use super::movement::permute;
use super::shape::{axis, extent, listed_elements};
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::numbers::Numbers;
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("DFT", Kinds::Float, transform).with_check(of_known_length),
    Operator::new("STFT", Kinds::Float, transform_frames).with_check(of_known_frames),
];

/// The longest transform that is worth a product: a fast one has fewer steps, and needs no matrix.
const LONGEST: usize = 2048;

/// A whole number that is the same in every run.
fn constant(graph: &Graph, node: &Node, i: usize) -> Option<i64> {
    graph.constants.get(node.input(i)?)?.ints().ok()?.first().copied()
}

fn is_short(length: Option<usize>) -> std::result::Result<(), String> {
    match length {
        Some(1..=LONGEST) => Ok(()),
        Some(length) => Err(format!("a transform of {length} numbers")),
        None => Err("the length of the transform isn't known".to_owned()),
    }
}

fn of_known_length(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    let shape = graph.input_type(node, 0).and_then(|known| known.shape.as_ref()).ok_or("the shape")?;
    let Some((Some(1 | 2), inner)) = shape.split_last() else {
        return Err("numbers that are neither real nor complex".to_owned());
    };
    let named = match (node.since < 20, node.input(2)) {
        (true, _) => Some(node.int("axis", 1)),
        (false, None) => Some(-2),
        (false, Some(_)) => constant(graph, node, 2),
    };
    let length = if node.input(1).is_some() {
        constant(graph, node, 1).and_then(|length| usize::try_from(length).ok())
    } else if let Some(named) = named {
        let axis = axis(named, shape.len()).map_err(|error| error.to_string())?;
        *inner.get(axis).ok_or("an axis of real and imaginary parts")?
    } else {
        // Any axis may be named when the node runs.
        inner.iter().copied().collect::<Option<Vec<_>>>().and_then(|extents| extents.into_iter().max())
    };
    is_short(length)
}

fn of_known_frames(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    let Some(&[_, signal, _]) = graph.input_type(node, 0).and_then(|known| known.shape.as_deref()) else {
        return Err("the number of dimensions".to_owned());
    };
    let window = graph.input_type(node, 2).and_then(|known| known.shape.as_ref()?.first().copied().flatten());
    let length = constant(graph, node, 3).and_then(|length| usize::try_from(length).ok());
    is_short(length.or(window).or(signal))
}

/// Which transform of numbers.
#[derive(Clone, Copy, Debug)]
struct Transform {
    /// Its length.
    length: usize,
    /// How many numbers of it are given; the others are zeros.
    given: usize,
    /// 1 of real numbers, 2 of complex ones.
    parts: usize,
    is_inverse: bool,
    /// Whether the half of the frequencies is left out that the other half tells, of real numbers.
    is_half: bool,
}

impl Transform {
    /// Numbers of the result, and 1 if they are real, 2 if complex.
    const fn result(&self) -> [usize; 2] {
        match (self.is_inverse, self.is_half) {
            (true, true) => [self.length, 1],
            (false, true) => [self.length / 2 + 1, 2],
            (_, false) => [self.length, 2],
        }
    }

    /// What a part of number `n` contributes to a part of a result, by the sine and the cosine of their angle.
    fn factor(&self, n: usize, from: usize, to: usize, (sine, cosine): (f64, f64)) -> f64 {
        let sine = if self.is_inverse { sine } else { -sine };
        let factor = match (from, to) {
            (0, 0) | (1, 1) => cosine,
            (0, _) => sine,
            _ => -sine,
        };
        let is_double = self.is_inverse && self.is_half && n > 0 && 2 * n != self.length;
        let scale = if self.is_inverse { 1.0 / self.length as f64 } else { 1.0 };
        factor * scale * if is_double { 2.0 } else { 1.0 }
    }

    /// Rows for the parts of each number, columns for those of each result.
    fn matrix(&self, kind: Kind) -> Result<Tensor> {
        let [count, parts] = self.result();
        let shape = vec![self.given * self.parts, count * parts];
        let mut factors = Vec::with_capacity(listed_elements(&shape)?);
        let angle = |i: usize| TAU * i as f64 / self.length as f64;
        let angles: Vec<(f64, f64)> = (0..self.length).map(|i| angle(i).sin_cos()).collect();
        for n in 0..self.given {
            for from in 0..self.parts {
                // The angles of all results, in steps of n.
                for angle in (0..count).filter_map(|k| angles.get((n * k) % self.length)) {
                    factors.extend((0..parts).map(|to| self.factor(n, from, to, *angle)));
                }
            }
        }
        Tensor::host(kind, shape, Numbers::Float(factors).convert(kind))
    }

    /// The transforms of rows of numbers.
    fn of_rows(&self, call: &Call<'_>, rows: &Tensor) -> Result<Tensor> {
        let epilogue = Epilogue { alpha: 1.0, bias: None, activation: Activation::Identity };
        product(call, rows, &self.matrix(rows.kind)?, [BackendTranspose::NoTrans; 2], epilogue)
    }
}

fn parts_of(x: &Tensor) -> Result<usize> {
    match x.shape.last() {
        Some(&parts @ (1 | 2)) => Ok(parts),
        _ => Err(Error::invalid(format!("{:?} are neither real nor complex numbers", x.shape))),
    }
}

fn transform(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, node, x) = (call.device(), call.node, call.input(0)?);
    let named = match call.ints(2)?.and_then(|axes| axes.first().copied()) {
        Some(named) => named,
        None if node.since < 20 => node.int("axis", 1),
        None => -2,
    };
    let (axis, last) = (axis(named, x.rank())?, x.rank().saturating_sub(1));
    let parts = parts_of(x)?;
    let count = x.shape[axis];
    let (is_inverse, is_half) = (node.int("inverse", 0) == 1, node.int("onesided", 0) == 1);
    let usual = if is_inverse && is_half { (2 * count).saturating_sub(2) } else { count };
    let length = call.ints(1)?.and_then(|length| length.first().copied());
    let length = length.map_or(Ok(usual), extent)?.max(1);
    let most = if is_inverse && is_half { length / 2 + 1 } else { length };
    let given = count.min(most);
    // The numbers of a transform side by side, and those beyond its length left out.
    let order: Vec<usize> = (0..last).filter(|&k| k != axis).chain([axis, last]).collect();
    let rows = d.packed(&permute(call, x, &order)?)?;
    let mut outer: Vec<usize> = order.iter().take(last.saturating_sub(1)).map(|&k| x.shape[k]).collect();
    let batch = outer.iter().product();
    let rows = d.viewed(&rows, 0, vec![batch, given * parts], vec![count * parts, 1])?;
    let of = Transform { length, given, parts, is_inverse, is_half };
    let y = of.of_rows(call, &d.packed(&rows)?)?;
    outer.extend(of.result());
    let mut back = vec![0; order.len()];
    order.iter().enumerate().for_each(|(to, &from)| back[from] = to);
    Ok(vec![permute(call, &y.reshaped(outer)?, &back)?])
}

/// The transforms of overlapping parts of a signal.
fn transform_frames(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x, window) = (call.device(), call.input(0)?, call.optional(2));
    let parts = parts_of(x)?;
    let &[batch, count, _] = x.shape.as_slice() else {
        return Err(Error::invalid(format!("a signal {:?}", x.shape)));
    };
    let number = |i: usize| -> Result<Option<usize>> {
        call.ints(i)?.and_then(|numbers| numbers.first().copied()).map(extent).transpose()
    };
    let step = number(1)?.filter(|&step| step > 0).ok_or_else(|| Error::invalid("frames without a step"))?;
    let length = number(3)?.or_else(|| window.map(Tensor::count));
    let length =
        length.filter(|&length| length > 0).ok_or_else(|| Error::invalid("frames without a length"))?;
    let room = count.checked_sub(length).ok_or_else(|| Error::invalid("a frame longer than the signal"))?;
    let frames = room / step + 1;
    d.base(x)?;
    let strides = vec![count * parts, step * parts, parts, 1];
    let mut rows = x.viewed(0, vec![batch, frames, length, parts], strides);
    if let Some(window) = window {
        d.sized(window, length)?;
        rows = d.binary(BinaryOp::Mul, &rows, &window.reshaped(vec![length, 1])?)?;
    }
    let rows = d.packed(&rows)?.reshaped(vec![batch * frames, length * parts])?;
    let is_half = call.node.int("onesided", 1) == 1;
    let of = Transform { length, given: length, parts, is_inverse: false, is_half };
    let [bins, complex] = of.result();
    Ok(vec![of.of_rows(call, &rows)?.reshaped(vec![batch, frames, bins, complex])?])
}
