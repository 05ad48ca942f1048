//! Einstein sums, as products of matrices or of numbers.

mod equation;

use std::collections::BTreeMap;

use backend_api::desc::MAX_RANK;
use backend_api::{Activation, BackendTranspose, BinaryOp, ReduceOp};

use self::equation::{Equation, Label, Labels};
use super::call::Call;
use super::matrix::{Epilogue, product};
use super::movement::permute;
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::model::{Graph, Node};
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] =
    &[Operator::new("Einsum", Kinds::Float, einsum).of_views().with_check(of_few_dimensions)];

/// As many dimensions as strided operations take, of all inputs together.
fn of_few_dimensions(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    let equation = Equation::parse(node.text("equation"))?;
    let rank = |i| graph.input_rank(node, i).ok_or("an input's number of dimensions isn't known");
    let ranks = (0..node.inputs.len()).map(rank).collect::<std::result::Result<Vec<_>, _>>()?;
    let count = equation.labels(&ranks)?.count();
    if count > MAX_RANK { Err(format!("{count} dimensions in one sum")) } else { Ok(()) }
}

/// A tensor whose dimensions have labels, none of them twice and none of a single element.
struct Term {
    tensor: Tensor,
    labels: Vec<Label>,
}

fn einsum(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let given = call.all();
    let ranks: Vec<usize> = given.iter().map(|x| x.rank()).collect();
    let equation = Equation::parse(call.node.text("equation")).map_err(Error::invalid)?;
    let Labels { inputs, output } = equation.labels(&ranks).map_err(Error::invalid)?;
    let mut extents: BTreeMap<Label, usize> = BTreeMap::new();
    for (label, &extent) in inputs.iter().flatten().zip(given.iter().flat_map(|x| &x.shape)) {
        match extents.insert(*label, extent) {
            Some(1) | None => {}
            Some(before) if extent == 1 || extent == before => _ = extents.insert(*label, before),
            Some(before) => {
                return Err(Error::invalid(format!("{before} and {extent} elements of one name")));
            }
        }
    }
    let mut terms = Vec::with_capacity(given.len());
    for (x, labels) in given.into_iter().zip(&inputs) {
        terms.push(term(call, x, labels)?);
    }
    let mut terms = terms.into_iter();
    let mut sum = terms.next().ok_or_else(|| Error::invalid("no input"))?;
    while let Some(next) = terms.next() {
        let rest = terms.as_slice();
        let is_kept =
            |label: &Label| output.contains(label) || rest.iter().any(|term| term.labels.contains(label));
        sum = contracted(call, sum, next, &is_kept)?;
    }
    sum = summed(call, sum, &|label| output.contains(label))?;
    let place = |label: &Label| sum.labels.iter().position(|other| other == label);
    let axes: Vec<usize> = output.iter().filter_map(place).collect();
    let y = permute(call, &sum.tensor, &axes)?;
    let shape = output.iter().map(|label| extents.get(label).copied().unwrap_or(1));
    Ok(vec![call.device().reshape(&y, shape.collect())?])
}

/// An input as a term: a label that it has twice names its diagonal.
fn term(call: &Call<'_>, x: &Tensor, labels: &[Label]) -> Result<Term> {
    let mut dimensions: Vec<(Label, usize, usize)> = Vec::with_capacity(labels.len());
    for ((&label, &extent), stride) in labels.iter().zip(&x.shape).zip(x.strides()) {
        match dimensions.iter_mut().find(|(other, ..)| *other == label) {
            Some((_, length, step)) if *length == extent => *step += stride,
            Some(_) => return Err(Error::invalid(format!("a diagonal of {:?}", x.shape))),
            None => dimensions.push((label, extent, stride)),
        }
    }
    dimensions.retain(|&(_, extent, _)| extent != 1);
    let (labels, rest): (Vec<_>, Vec<_>) = dimensions.into_iter().map(|(a, b, c)| (a, (b, c))).unzip();
    let (shape, strides) = rest.into_iter().unzip();
    Ok(Term { tensor: call.device().viewed(x, x.offset(), shape, strides)?, labels })
}

/// The sum over what isn't kept.
fn summed(call: &Call<'_>, term: Term, is_kept: &dyn Fn(&Label) -> bool) -> Result<Term> {
    let Term { tensor, labels } = term;
    let axes: Vec<usize> = (0..labels.len()).filter(|&k| !is_kept(&labels[k])).collect();
    if axes.is_empty() {
        return Ok(Term { tensor, labels });
    }
    let sum = call.device().reduce(ReduceOp::Sum, &tensor, &axes)?;
    let kept = |k: &usize| !axes.contains(k);
    let shape = (0..labels.len()).filter(kept).map(|k| tensor.shape[k]).collect();
    let labels = (0..labels.len()).filter(kept).map(|k| labels[k]).collect();
    Ok(Term { tensor: sum.reshaped(shape)?, labels })
}

/// The product of two terms, summed over what isn't kept.
fn contracted(call: &Call<'_>, a: Term, b: Term, is_kept: &dyn Fn(&Label) -> bool) -> Result<Term> {
    let a = summed(call, a, &|label| is_kept(label) || b.labels.contains(label))?;
    let b = summed(call, b, &|label| is_kept(label) || a.labels.contains(label))?;
    let (shared, rows): (Vec<Label>, Vec<Label>) =
        a.labels.iter().partition(|&label| b.labels.contains(label));
    let columns: Vec<Label> = b.labels.iter().copied().filter(|label| !a.labels.contains(label)).collect();
    let (batch, inner): (Vec<Label>, Vec<Label>) = shared.into_iter().partition(|label| is_kept(label));
    let extent = |label: &Label| a.extent(label).or_else(|| b.extent(label)).unwrap_or(1);
    let labels = [batch.as_slice(), &rows, &columns].concat();
    if inner.is_empty() {
        let tensor =
            call.device().binary(BinaryOp::Mul, &a.spread(call, &labels)?, &b.spread(call, &labels)?)?;
        return Ok(Term { tensor, labels });
    }
    let (left, left_trans) = a.matrices(call, [&batch, &rows, &inner])?;
    let (right, right_trans) = b.matrices(call, [&batch, &inner, &columns])?;
    let epilogue = Epilogue { alpha: 1.0, bias: None, activation: Activation::Identity };
    let tensor = product(call, &left, &right, [left_trans, right_trans], epilogue)?;
    let shape = labels.iter().map(extent).collect();
    Ok(Term { tensor: tensor.reshaped(shape)?, labels })
}

impl Term {
    fn extent(&self, label: &Label) -> Option<usize> {
        let place = self.labels.iter().position(|other| other == label)?;
        self.tensor.shape.get(place).copied()
    }

    /// A view with the dimensions that `labels` name, of a single element where the term has none.
    fn spread(&self, call: &Call<'_>, labels: &[Label]) -> Result<Tensor> {
        let strides = self.tensor.strides();
        let dimension = |label: &Label| {
            let place = self.labels.iter().position(|other| other == label);
            place.map_or((1, 0), |k| (self.tensor.shape[k], strides[k]))
        };
        let (shape, strides) = labels.iter().map(dimension).unzip();
        call.device().base(&self.tensor)?;
        Ok(self.tensor.viewed(self.tensor.offset(), shape, strides))
    }

    /// The term as matrices, or a single one if there is no batch: a copy unless they lie in memory as they
    /// are or transposed.
    fn matrices(
        &self,
        call: &Call<'_>,
        [batch, rows, columns]: [&[Label]; 3],
    ) -> Result<(Tensor, BackendTranspose)> {
        let count =
            |labels: &[Label]| labels.iter().filter_map(|label| self.extent(label)).product::<usize>();
        let mut shape = if batch.is_empty() { Vec::new() } else { vec![count(batch)] };
        let straight = self.spread(call, &[batch, rows, columns].concat())?;
        let turned = self.spread(call, &[batch, columns, rows].concat())?;
        if straight.is_view() && !turned.is_view() {
            shape.extend([count(columns), count(rows)]);
            return Ok((turned.reshaped(shape)?, BackendTranspose::Trans));
        }
        shape.extend([count(rows), count(columns)]);
        Ok((call.device().packed(&straight)?.reshaped(shape)?, BackendTranspose::NoTrans))
    }
}

/// How a sum of two inputs is a product of matrices, perhaps a batch of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// Whether the second input is the left factor.
    pub(crate) is_swapped: bool,
    /// Whether the right factor is transposed.
    pub(crate) is_transposed: bool,
}

/// The form of a sum over inputs of these ranks: `…mk` times `…kn`, or `…nk`, is `…mn`, where the right factor
/// may have two dimensions only.
pub(crate) fn product_form(equation: &str, ranks: [usize; 2]) -> Option<Form> {
    let Labels { inputs, output } = Equation::parse(equation).ok()?.labels(&ranks).ok()?;
    let [a, b] = inputs.as_slice() else { return None };
    let form = |is_swapped: bool| {
        let (a, b) = if is_swapped { (b, a) } else { (a, b) };
        let ([outer @ .., m, k], [batch @ .., row, column]) = (a.as_slice(), b.as_slice()) else {
            return None;
        };
        let (is_transposed, n) = match (row == k, column == k) {
            (true, false) => (false, column),
            (false, true) => (true, row),
            _ => return None,
        };
        let is_batch = batch.is_empty() || batch == outer;
        let all = [outer, &[*m, *k, *n]].concat();
        let is_distinct = all.iter().collect::<std::collections::BTreeSet<_>>().len() == all.len();
        let is_product = is_batch && is_distinct && output == [outer, &[*m, *n]].concat();
        is_product.then_some(Form { is_swapped, is_transposed })
    };
    form(false).or_else(|| form(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_that_are_products() {
        let form = |equation, ranks| product_form(equation, ranks).map(|x| (x.is_swapped, x.is_transposed));
        assert_eq!(form("bhqd,bhkd->bhqk", [4, 4]), Some((false, true)));
        assert_eq!(form("bhqk,bhkd->bhqd", [4, 4]), Some((false, false)));
        assert_eq!(form("bhkd,bhqd->bhqk", [4, 4]), Some((true, true)));
        assert_eq!(form("bld,de->ble", [3, 2]), Some((false, false)));
        assert_eq!(form("...ij,...jk", [3, 3]), Some((false, false)));
        assert_eq!(form("de,bld->ble", [2, 3]), Some((true, false)));
        for (equation, ranks) in [
            ("bqhd,bkhd->bhqk", [4, 4]),
            ("bij,bij->bij", [3, 3]),
            ("bij,bjk->ik", [3, 3]),
            ("ij,jj->ij", [2, 2]),
            ("ij,jk->ki", [2, 2]),
            ("bij,jk->bjk", [3, 2]),
        ] {
            assert_eq!(form(equation, ranks), None, "{equation}");
        }
    }
}
