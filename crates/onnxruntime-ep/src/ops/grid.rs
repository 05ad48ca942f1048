//! Samples of images and volumes at the places that a grid names.

use backend_api::{BinaryOp, CompareOp, UnaryOp};

use super::call::Call;
use super::device::Device;
use super::movement::permute;
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::numbers::Numbers;
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] =
    &[Operator::new("GridSample", Kinds::Float, grid_sample).with_check(of_images_and_volumes)];

/// Coefficients of a polynomial of the third degree, the highest power's first.
type Polynomial = [f64; 4];

/// The neighbours of a place along an axis: how far from the one before it, and with what weight, by the
/// place's distance from that one.
fn neighbours(mode: &str) -> Option<&'static [(f64, Polynomial)]> {
    // Keys' convolution of 1981, with this slope at a distance of 1.
    const A: f64 = -0.75;
    Some(match mode {
        "nearest" => &[(0.0, [0.0, 0.0, 0.0, 1.0])],
        "" | "linear" | "bilinear" => &[(0.0, [0.0, 0.0, -1.0, 1.0]), (1.0, [0.0, 0.0, 1.0, 0.0])],
        "cubic" | "bicubic" => &[
            (-1.0, [A, -2.0 * A, A, 0.0]),
            (0.0, [A + 2.0, -A - 3.0, 0.0, 1.0]),
            (1.0, [-A - 2.0, 2.0 * A + 3.0, -A, 0.0]),
            (2.0, [-A, A, 0.0, 0.0]),
        ],
        _ => return None,
    })
}

fn of_images_and_volumes(graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    let rank = graph.input_rank(node, 0);
    let neighbours =
        neighbours(node.text("mode")).ok_or_else(|| format!("the mode {}", node.text("mode")))?;
    if !(rank == Some(4) || rank == Some(5) && neighbours.len() < 4) {
        return Err("the number of dimensions".to_owned());
    }
    match node.text("padding_mode") {
        "" | "zeros" | "border" | "reflection" => Ok(()),
        other => Err(format!("the padding {other:?}")),
    }
}

/// A neighbour of every place along an axis: what it adds to the index of an element, and its weight.
struct Neighbour {
    index: Tensor,
    weight: Option<Tensor>,
}

/// Indices below all others, so that a sum with one of them is outside of every table.
const OUTSIDE: i64 = -(1 << 29);

/// Weighted sums of the elements around each place, which are rows of a table: channels come last.
fn grid_sample(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (d, x, grid) = (call.device(), call.input(0)?, call.input(1)?);
    let wrong = || Error::invalid(format!("a grid {:?} for {:?}", grid.shape, x.shape));
    let &[batch, depth, ref from @ ..] = x.shape.as_slice() else { return Err(wrong()) };
    let &[of_batch, ref to @ .., axes] = grid.shape.as_slice() else { return Err(wrong()) };
    if of_batch != batch || axes != from.len() || to.len() != from.len() {
        return Err(wrong());
    }
    let (area, places): (usize, usize) = (from.iter().product(), to.iter().product());
    if batch * area >= OUTSIDE.unsigned_abs() as usize {
        return Err(Error::invalid(format!("samples of {:?}", x.shape)));
    }
    let last: Vec<usize> = [0].into_iter().chain(2..x.rank()).chain([1]).collect();
    let table = d.packed(&permute(call, x, &last)?)?.reshaped(vec![batch * area, depth])?;
    let grid = d.convert(grid, Kind::F32)?;
    d.base(&grid)?;
    let starts = Numbers::Int((0..batch).map(|i| (i * area) as i64).collect());
    let mut sums = vec![Neighbour { index: Tensor::host(Kind::I32, vec![batch, 1], starts)?, weight: None }];
    for (axis, &length) in from.iter().enumerate() {
        // Of the coordinates, the innermost axis has the first.
        let place = grid.viewed(axes - 1 - axis, vec![batch, places], vec![places * axes, axes]);
        let step: usize = from.iter().skip(axis + 1).product();
        let along = along(call, &place, length, step)?;
        let mut both = Vec::with_capacity(sums.len() * along.len());
        for sum in &sums {
            for one in &along {
                both.push(Neighbour {
                    index: d.binary(BinaryOp::Add, &sum.index, &one.index)?,
                    weight: match (&sum.weight, &one.weight) {
                        (Some(a), Some(b)) => Some(d.binary(BinaryOp::Mul, a, b)?),
                        (a, b) => a.as_ref().or(b.as_ref()).cloned(),
                    },
                });
            }
        }
        sums = both;
    }
    let mut y: Option<Tensor> = None;
    for Neighbour { index, weight } in sums {
        let mut rows = d.select(&table, 0, &index.reshaped(vec![batch * places])?)?;
        if let Some(weight) = weight {
            let weight = d.convert(&weight, x.kind)?.reshaped(vec![batch * places, 1])?;
            rows = d.binary(BinaryOp::Mul, &rows, &weight)?;
        }
        y = Some(match y {
            Some(sum) => d.binary(BinaryOp::Add, &sum, &rows)?,
            None => rows,
        });
    }
    let y = y.ok_or_else(wrong)?.reshaped(vec![batch, places, depth])?;
    let y = permute(call, &y, &[0, 2, 1])?;
    Ok(vec![d.reshape(&y, [&[batch, depth], to].concat())?])
}

/// The neighbours of places along an axis of `length` elements that are `step` apart.
fn along(call: &Call<'_>, place: &Tensor, length: usize, step: usize) -> Result<Vec<Neighbour>> {
    let (d, node) = (call.device(), call.node);
    let between_centres = node.int("align_corners", 0) == 1;
    let (half, last) = (length as f64 / 2.0, length as f64 - 1.0);
    let at = d.affine(place, if between_centres { last / 2.0 } else { half }, last / 2.0)?;
    let found = neighbours(node.text("mode")).ok_or_else(|| Error::invalid("the mode"))?;
    let (first, beyond) = if found.len() == 1 {
        (d.unary(UnaryOp::Round, &at)?, None)
    } else {
        let first = d.unary(UnaryOp::Floor, &at)?;
        let beyond = d.binary(BinaryOp::Sub, &at, &first)?;
        (first, Some(beyond))
    };
    let neighbour = |&(distance, polynomial): &(f64, Polynomial)| {
        let at = if distance == 0.0 { first.clone() } else { d.affine(&first, 1.0, distance)? };
        let inside = match node.text("padding_mode") {
            "reflection" => d.clamp(&reflected(d, &at, length, between_centres)?, 0.0, last)?,
            _ => d.clamp(&at, 0.0, last)?,
        };
        let mut index = d.binary(BinaryOp::Mul, &d.convert(&inside, Kind::I32)?, step as f64)?;
        if matches!(node.text("padding_mode"), "" | "zeros") {
            index = d.choose(&d.compare(CompareOp::Eq, &inside, &at)?, &index, OUTSIDE as f64)?;
        }
        let weight = beyond.as_ref().map(|beyond| value(d, beyond, polynomial)).transpose()?;
        Ok(Neighbour { index, weight })
    };
    found.iter().map(neighbour).collect()
}

/// Where whole numbers come to lie that are reflected at both ends of an axis: at the centres of the outermost
/// elements, or at their outer edges.
fn reflected(d: Device<'_>, at: &Tensor, length: usize, between_centres: bool) -> Result<Tensor> {
    let (low, span) = if between_centres { (0.0, length as f64 - 1.0) } else { (-0.5, length as f64) };
    if span <= 0.0 {
        return d.affine(at, 0.0, 0.0);
    }
    let walked = d.binary(BinaryOp::Mod, &d.affine(at, 1.0, -low)?, 2.0 * span)?;
    let back = d.unary(UnaryOp::Abs, &d.affine(&walked, 1.0, -span)?)?;
    d.affine(&back, -1.0, span + low)
}

/// A polynomial's value at each number, by Horner's rule.
fn value(d: Device<'_>, x: &Tensor, polynomial: Polynomial) -> Result<Tensor> {
    let powers = polynomial.iter().position(|&factor| factor != 0.0).unwrap_or(polynomial.len() - 1);
    let (first, rest) = polynomial.get(powers..).and_then(<[f64]>::split_first).unwrap_or((&0.0, &[]));
    let Some((second, rest)) = rest.split_first() else { return d.affine(x, 0.0, *first) };
    let mut sum = d.affine(x, *first, *second)?;
    for &factor in rest {
        sum = d.binary(BinaryOp::Mul, &sum, x)?;
        if factor != 0.0 {
            sum = d.affine(&sum, 1.0, factor)?;
        }
    }
    Ok(sum)
}
