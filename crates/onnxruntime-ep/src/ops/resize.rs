//! Images of another size: `Resize` and `Upsample`, axis by axis.

use backend_api::{Activation, BackendTranspose};

use super::call::Call;
use super::matrix::{Epilogue, product};
use super::movement::along;
use super::shape::{axis, extent, listed};
use super::{Kinds, Operator};
use crate::error::{Error, Result};
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::numbers::Numbers;
use crate::tensor::Tensor;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::new("Resize", Kinds::Float, resize).with_check(by_position),
    Operator::new("Upsample", Kinds::Float, resize).with_check(by_position),
];

/// Weights that depend on nothing but the position, and sizes that nothing else is derived from.
fn by_position(_graph: &Graph, node: &Node) -> std::result::Result<(), String> {
    if node.int("antialias", 0) != 0 {
        return Err("antialiasing".to_owned());
    }
    if !matches!(node.text("keep_aspect_ratio_policy"), "" | "stretch") {
        return Err("a kept aspect ratio".to_owned());
    }
    if !matches!(node.text("mode"), "" | "nearest" | "linear" | "cubic") {
        return Err("the mode".to_owned());
    }
    match node.text("coordinate_transformation_mode") {
        ""
        | "half_pixel"
        | "half_pixel_symmetric"
        | "pytorch_half_pixel"
        | "align_corners"
        | "asymmetric" => Ok(()),
        other => Err(format!("the coordinates of {other}")),
    }
}

/// Extents of input and output along an axis, and how much longer the output is.
#[derive(Clone, Copy, Debug)]
struct Line {
    from: usize,
    to: usize,
    scale: f64,
    /// Whether the scale is the quotient of the extents, of which f64 has only the nearest number.
    is_sized: bool,
}

impl Line {
    /// `place / scale`, where the scale is a quotient without its rounding, which would decide in the middle
    /// between two elements.
    fn unscaled(&self, place: f64) -> f64 {
        if self.is_sized { place * self.from as f64 / self.to as f64 } else { place / self.scale }
    }
}

fn resize(call: &Call<'_>) -> Result<Vec<Tensor>> {
    let (node, x) = (call.node, call.input(0)?);
    let mut y = x.clone();
    for (axis, line) in lines(call, x)? {
        if line.to > 0 && line.from == 0 {
            return Err(Error::invalid("nothing to resize"));
        }
        y = match node.text("mode") {
            "linear" | "cubic" => interpolated(call, &y, axis, line)?,
            _ => nearest(call, &y, axis, line)?,
        };
    }
    Ok(vec![y])
}

/// The axes that change, by sizes or by scales: of all dimensions, or of those that the attribute names.
fn lines(call: &Call<'_>, x: &Tensor) -> Result<Vec<(usize, Line)>> {
    // Two inputs are data and scales, as before operator set 11 and in `Upsample`.
    let scales_at = if call.node.inputs.len() > 2 { 2 } else { 1 };
    let given = |i| call.optional(i).filter(|tensor| tensor.count() > 0);
    let attribute = match call.node.attributes.get("scales") {
        Some(crate::model::Attribute::Floats(scales)) => Some(scales.clone()),
        _ => None,
    };
    let axes: Vec<usize> = match call.node.ints("axes") {
        Some(named) => named.iter().map(|&named| axis(named, x.rank())).collect::<Result<_>>()?,
        None => (0..x.rank()).collect(),
    };
    let from: Vec<usize> = axes.iter().map(|&axis| x.shape[axis]).collect();
    let lines: Vec<Line> = if let Some(sizes) = given(3) {
        let sizes = sizes.ints()?.into_iter().map(extent).collect::<Result<Vec<_>>>()?;
        let line = |(&from, to): (&usize, usize)| {
            let scale = to as f64 / from.max(1) as f64;
            Line { from, to, scale, is_sized: true }
        };
        from.iter().zip(sizes).map(line).collect()
    } else {
        let scales = match given(scales_at) {
            Some(scales) => scales.numbers()?.floats(),
            None => attribute.ok_or_else(|| Error::invalid("neither scales nor sizes"))?,
        };
        let line = |(&from, scale): (&usize, f64)| {
            // As ONNX infers the shape: ten times 1.3 of f32, which is a little less, are 12.
            let to = listed((from as f64 * scale).floor().max(0.0) as i64)?;
            Ok(Line { from, to, scale, is_sized: false })
        };
        from.iter().zip(scales).map(line).collect::<Result<_>>()?
    };
    if lines.len() != axes.len() {
        return Err(Error::invalid(format!("{} sizes for {} axes", lines.len(), axes.len())));
    }
    let changes = |(_, line): &(usize, Line)| line.from != line.to || line.scale != 1.0;
    Ok(axes.into_iter().zip(lines).filter(changes).collect())
}

/// The place in the input that an element of the output comes from.
fn source(node: &Node, line: Line, i: usize) -> f64 {
    let Line { from, to, scale, .. } = line;
    let i = i as f64;
    match node.text("coordinate_transformation_mode") {
        "asymmetric" => line.unscaled(i),
        "align_corners" if to == 1 => 0.0,
        // As ONNX has it, by the length before it was rounded.
        "align_corners" => i * (from as f64 - 1.0) / (from as f64 * scale - 1.0),
        "pytorch_half_pixel" if to == 1 => 0.0,
        "half_pixel_symmetric" => {
            let adjustment = to as f64 / (from as f64 * scale);
            let centre = from as f64 / 2.0;
            centre * (1.0 - adjustment) + line.unscaled(i + 0.5) - 0.5
        }
        // What `Upsample` has always done.
        _ if node.operator == "Upsample" || (node.since < 11) => line.unscaled(i),
        _ => line.unscaled(i + 0.5) - 0.5,
    }
}

fn nearest(call: &Call<'_>, x: &Tensor, axis: usize, line: Line) -> Result<Tensor> {
    let node = call.node;
    let last = line.from as f64 - 1.0;
    let place = |i| {
        let at = source(node, line, i);
        let rounded = match node.text("nearest_mode") {
            "floor" => at.floor(),
            "ceil" => at.ceil(),
            "round_prefer_ceil" => (at + 0.5).floor(),
            // ONNX left the rounding open before operator set 11; ONNX Runtime rounds up where an image shrinks.
            _ if node.since < 11 && line.scale < 1.0 => at.ceil(),
            _ if node.operator == "Upsample" || node.since < 11 => at.floor(),
            _ => (at - 0.5).ceil(),
        };
        rounded.clamp(0.0, last) as i64
    };
    let places: Vec<i64> = (0..line.to).map(place).collect();
    let times = line.to / line.from.max(1);
    let is_repeated = times > 0 && places.iter().enumerate().all(|(i, &place)| place as usize == i / times);
    if !is_repeated || times * line.from != line.to {
        return along(call, x, axis, places);
    }
    // Each element several times in a row.
    let (mut apart, mut shape, mut together) = (x.shape.clone(), x.shape.clone(), x.shape.clone());
    apart.insert(axis + 1, 1);
    shape.insert(axis + 1, times);
    together[axis] = line.to;
    let d = call.device();
    d.expand(&d.reshape(x, apart)?, &shape)?.reshaped(together)
}

/// A product with the weights of each element of the input in each of the output.
fn interpolated(call: &Call<'_>, x: &Tensor, axis: usize, line: Line) -> Result<Tensor> {
    let node = call.node;
    let Line { from, to, .. } = line;
    let mut weights = vec![0.0; listed((from * to) as i64)?];
    for i in 0..to {
        let at = source(node, line, i);
        let below = at.floor();
        let taps: Vec<(f64, f64)> = if node.text("mode") == "cubic" {
            let a = node.float("cubic_coeff_a", -0.75);
            (-1..=2).map(|k| (below + f64::from(k), cubic(a, (at - below - f64::from(k)).abs()))).collect()
        } else {
            vec![(below, 1.0 - (at - below)), (below + 1.0, at - below)]
        };
        let is_inside = |place: f64| place >= 0.0 && place < from as f64;
        let excludes = node.int("exclude_outside", 0) == 1;
        let taken = |place: f64| !excludes || is_inside(place);
        let all: f64 = taps.iter().filter(|&&(place, _)| taken(place)).map(|(_, weight)| weight).sum();
        let all = if excludes { all } else { 1.0 };
        for (place, weight) in taps.into_iter().filter(|&(place, _)| taken(place)) {
            let place = place.clamp(0.0, from as f64 - 1.0) as usize;
            if let Some(sum) = weights.get_mut(i * from + place) {
                *sum += weight / all;
            }
        }
    }
    let kind = if x.kind == Kind::F16 { Kind::F16 } else { Kind::F32 };
    let weights = Tensor::host(kind, vec![to, from], Numbers::Float(weights).convert(kind))?;
    let epilogue = Epilogue { alpha: 1.0, bias: None, activation: Activation::Identity };
    let mut shape = x.shape.clone();
    shape[axis] = to;
    let [outer, inner] = x.around(axis);
    let (no, yes) = (BackendTranspose::NoTrans, BackendTranspose::Trans);
    let y = if inner == 1 {
        product(call, &x.reshaped(vec![outer, from])?, &weights, [no, yes], epilogue)?
    } else {
        product(call, &weights, &x.reshaped(vec![outer, from, inner])?, [no, no], epilogue)?
    };
    y.reshaped(shape)
}

/// The weight of an element at a distance, by Keys' kernel.
fn cubic(a: f64, x: f64) -> f64 {
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}
