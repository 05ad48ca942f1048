//! Slices, permutations, repetitions, paddings and concatenations: strided copies between parts of tensors.
//!
//! The element type may change on the way, as [`CopyDesc`](super::CopyDesc) has it. The output may not
//! overlap an input.

use crate::operand::{Access, Operand};
use crate::{BackendError, BackendResult, Bound, checked_add, checked_product};

use super::tensor::{Loop, TensorDesc, require_distinct, walk};
use super::value::operand;
use super::{require_at_least, require_axis, require_eq};

/// A copy of a part of one tensor to a part of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it starts, in elements after the start of input and output.
    pub offsets: [usize; 2],
    /// The loops over (input, output).
    pub loops: Vec<Loop<2>>,
}

/// Extent and stride of each dimension.
type Dims = Vec<(usize, usize)>;

/// `output[i₀, …] = input[starts₀ + i₀ · steps₀, …]`: as many elements along each dimension as the output
/// has.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SliceDesc<'a> {
    /// Read.
    pub input: TensorDesc<'a>,
    /// Written.
    pub output: TensorDesc<'a>,
    /// The first index along each dimension.
    pub starts: &'a [usize],
    /// The distance of indices along each dimension, at least 1; `None` for 1.
    pub steps: Option<&'a [usize]>,
}

handles!(SliceDesc<'_>: input, output);

impl<'a> SliceDesc<'a> {
    /// Neighbouring elements from `starts` on.
    #[must_use]
    pub const fn new(input: TensorDesc<'a>, output: TensorDesc<'a>, starts: &'a [usize]) -> Self {
        Self { input, output, starts, steps: None }
    }

    setters! {
        /// Every `steps`-th element.
        pub fn with_steps(Some(steps): &'a [usize]);
    }

    /// Checks the shapes. Returns input and output, and what is copied.
    pub fn operands(&self, op: &'static str) -> BackendResult<([Operand; 2], Part)> {
        let ([from, to], operands) = both(op, self.input, self.output)?;
        require_eq(op, "rank of the input", to.len(), from.len())?;
        require_eq(op, "starts", to.len(), self.starts.len())?;
        require_eq(op, "steps", to.len(), self.steps.map_or(to.len(), <[usize]>::len))?;
        let mut offset = 0;
        let mut dims = Vec::with_capacity(to.len());
        let empty = has_no_elements(&to);
        for (k, (&(extent, stride), &(count, _))) in from.iter().zip(&to).enumerate() {
            let step = self.steps.map_or(1, |steps| steps[k]);
            require_at_least(op, "step", 1, step)?;
            // A single element takes no step, so one of any length fits.
            let step = if count > 1 { step } else { 1 };
            let reach = match count.checked_sub(1) {
                Some(last) => checked_add(
                    op,
                    "end of the slice",
                    checked_product(op, "end of the slice", &[last, step])?,
                    1,
                )?,
                None => 0,
            };
            let end = checked_add(op, "end of the slice", self.starts[k], reach)?;
            require_at_least(op, "extent of the input", end, extent)?;
            // An empty output starts nowhere, and no stride is taken for it.
            if empty {
                dims.push((count, 0));
                continue;
            }
            offset =
                checked_add(op, "start", offset, checked_product(op, "start", &[self.starts[k], stride])?)?;
            dims.push((count, checked_product(op, "input strides", &[stride, step])?));
        }
        part(op, operands, [offset, 0], [dims, to])
    }
}

/// `output[i₀, …, iₙ] = input[…]` with the dimensions in another order: dimension `k` of the output is
/// dimension `axes[k]` of the input, as in NumPy's `transpose`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PermuteDesc<'a> {
    /// Read.
    pub input: TensorDesc<'a>,
    /// Written.
    pub output: TensorDesc<'a>,
    /// Each of the input's dimensions once.
    pub axes: &'a [usize],
}

handles!(PermuteDesc<'_>: input, output);

impl<'a> PermuteDesc<'a> {
    /// `output = transpose(input, axes)`.
    #[must_use]
    pub const fn new(input: TensorDesc<'a>, output: TensorDesc<'a>, axes: &'a [usize]) -> Self {
        Self { input, output, axes }
    }

    /// Checks the shapes. Returns input and output, and what is copied.
    pub fn operands(&self, op: &'static str) -> BackendResult<([Operand; 2], Part)> {
        let ([from, to], operands) = both(op, self.input, self.output)?;
        require_eq(op, "rank of the input", to.len(), from.len())?;
        require_eq(op, "axes", to.len(), self.axes.len())?;
        let mut dims = Vec::with_capacity(to.len());
        for (k, &axis) in self.axes.iter().enumerate() {
            require_axis(op, from.len(), axis)?;
            let dim = from[axis];
            if self.axes[..k].contains(&axis) {
                return Err(BackendError::Shape { op, what: "axis", expected: Bound::Unlisted, got: axis });
            }
            require_eq(op, "extent of the input", to[k].0, dim.0)?;
            dims.push(dim);
        }
        part(op, operands, [0; 2], [dims, to])
    }
}

/// The input again and again along each dimension, as often as the output's extent is a multiple of the
/// input's: `output[i, …] = input[i mod extent, …]`, as in NumPy's `tile`. Dimensions that the input misses
/// count as 1.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RepeatDesc<'a> {
    /// Read.
    pub input: TensorDesc<'a>,
    /// Written.
    pub output: TensorDesc<'a>,
    /// Whether each element is repeated next to itself (`output[i, …] = input[i / times, …]`) rather than the
    /// whole dimension.
    pub interleaved: bool,
}

handles!(RepeatDesc<'_>: input, output);

impl<'a> RepeatDesc<'a> {
    /// The whole input again and again.
    #[must_use]
    pub const fn new(input: TensorDesc<'a>, output: TensorDesc<'a>) -> Self {
        Self { input, output, interleaved: false }
    }

    setters! {
        /// Each element next to itself, as in PyTorch's `repeat_interleave`.
        pub fn with_interleaved(interleaved = true);
    }

    /// Checks the shapes. Returns input and output, and what is copied.
    pub fn operands(&self, op: &'static str) -> BackendResult<([Operand; 2], Part)> {
        let ([from, to], operands) = both(op, self.input, self.output)?;
        let missing = to.len().checked_sub(from.len());
        let expected = Bound::AtMost(to.len());
        let missing = missing.ok_or(BackendError::Shape {
            op,
            what: "rank of the input",
            expected,
            got: from.len(),
        })?;
        let (mut source, mut target) = (Vec::new(), Vec::new());
        let empty = has_no_elements(&to);
        for (k, &(whole, stride)) in to.iter().enumerate() {
            let (extent, step) = k.checked_sub(missing).map_or((1, 0), |k| from[k]);
            let times = whole.checked_div(extent).unwrap_or(0);
            require_eq(op, "extent of the output", times * extent, whole)?;
            // Along the dimension first the repetitions, then the elements, or the other way round.
            let far = |count: usize| match empty {
                true => Ok(0),
                false => checked_product(op, "output strides", &[stride, count]),
            };
            if self.interleaved {
                source.extend([(extent, step), (times, 0)]);
                target.extend([(extent, far(times)?), (times, stride)]);
            } else {
                source.extend([(times, 0), (extent, step)]);
                target.extend([(times, far(extent)?), (extent, stride)]);
            }
        }
        part(op, operands, [0; 2], [source, target])
    }
}

/// The input with `value` around it: along each dimension `before` elements, the input, and what the output
/// has left.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PadDesc<'a> {
    /// Read.
    pub input: TensorDesc<'a>,
    /// Written.
    pub output: TensorDesc<'a>,
    /// Elements before the input along each dimension.
    pub before: &'a [usize],
    /// What they are, converted as [`CopyDesc`](super::CopyDesc) would convert an f64.
    pub value: f64,
}

handles!(PadDesc<'_>: input, output);

impl<'a> PadDesc<'a> {
    /// `value` around the input.
    #[must_use]
    pub const fn new(input: TensorDesc<'a>, output: TensorDesc<'a>, before: &'a [usize], value: f64) -> Self {
        Self { input, output, before, value }
    }

    /// Checks the shapes. Returns input and output, what is copied, and the loops over the whole output.
    pub fn operands(&self, op: &'static str) -> BackendResult<([Operand; 2], Part, Vec<Loop<1>>)> {
        let ([from, to], operands) = both(op, self.input, self.output)?;
        require_eq(op, "rank of the input", to.len(), from.len())?;
        require_eq(op, "before", to.len(), self.before.len())?;
        let whole = walk(op, [&to])?;
        let mut offset = 0;
        let mut dims = Vec::with_capacity(to.len());
        let empty = has_no_elements(&to);
        for (k, (&(count, _), &(extent, stride))) in from.iter().zip(&to).enumerate() {
            let end = checked_add(op, "end of the input", self.before[k], count)?;
            require_at_least(op, "extent of the output", end, extent)?;
            // An empty input starts nowhere, and no stride of an empty output is bounded.
            if count > 0 && !empty {
                offset += self.before[k] * stride;
            }
            dims.push((count, stride));
        }
        let (operands, part) = part(op, operands, [0, offset], [from, dims])?;
        Ok((operands, part, whole))
    }
}

/// The inputs one after the other along an axis.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ConcatDesc<'a> {
    /// Read.
    pub inputs: &'a [TensorDesc<'a>],
    /// Written; its extent along the axis is the sum of theirs.
    pub output: TensorDesc<'a>,
    /// The dimension along which they follow each other.
    pub axis: usize,
}

impl<'a> ConcatDesc<'a> {
    /// `output = concat(inputs, axis)`.
    #[must_use]
    pub const fn new(inputs: &'a [TensorDesc<'a>], output: TensorDesc<'a>, axis: usize) -> Self {
        Self { inputs, output, axis }
    }

    /// Checks the shapes. Returns for each input the operands, input and output, and what is copied.
    pub fn operands(&self, op: &'static str) -> BackendResult<Vec<([Operand; 2], Part)>> {
        let to = self.output.dims(op, "output strides")?;
        require_distinct(op, "output", &to)?;
        require_axis(op, to.len(), self.axis)?;
        let (whole, stride) = to[self.axis];
        let empty = has_no_elements(&to);
        let mut start = 0usize;
        let mut parts = Vec::with_capacity(self.inputs.len());
        for &input in self.inputs {
            let ([from, _], operands) = both(op, input, self.output)?;
            require_eq(op, "rank of an input", to.len(), from.len())?;
            let end = checked_add(op, "extent along the axis", start, from[self.axis].0)?;
            require_at_least(op, "extent of the output along the axis", end, whole)?;
            let mut dims = to.clone();
            dims[self.axis].0 = from[self.axis].0;
            for (&(expected, _), &(got, _)) in dims.iter().zip(&from) {
                require_eq(op, "extent of an input", expected, got)?;
            }
            // Beyond the last element there may be no place, and no stride of an empty output is bounded.
            let offset = if end > start && !empty { start * stride } else { 0 };
            parts.push(part(op, operands, [0, offset], [from, dims])?);
            start = end;
        }
        require_eq(op, "extent of the output along the axis", start, whole)?;
        Ok(parts)
    }
}

/// Whether a tensor is empty. Its strides lead nowhere, so that they may be any numbers.
fn has_no_elements(dims: &[(usize, usize)]) -> bool {
    dims.iter().any(|&(extent, _)| extent == 0)
}

/// The dimensions of both tensors, and their operands. An output without elements needs no input.
fn both(
    op: &'static str,
    input: TensorDesc<'_>,
    output: TensorDesc<'_>,
) -> BackendResult<([Dims; 2], [Operand; 2])> {
    let from = input.dims(op, "input strides")?;
    let to = output.dims(op, "output strides")?;
    require_distinct(op, "output", &to)?;
    let read = operand(op, "input", input, &from, Access::Read)?;
    let written = operand(op, "output", output, &to, Access::Write)?;
    let read = if written.bytes == 0 { Operand::absent("input") } else { read };
    Ok(([from, to], [read, written]))
}

fn part(
    op: &'static str,
    operands: [Operand; 2],
    offsets: [usize; 2],
    [from, to]: [Dims; 2],
) -> BackendResult<([Operand; 2], Part)> {
    let loops = walk(op, [&from, &to])?;
    Ok((operands, Part { offsets, loops }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    const OP: &str = "t";

    #[test]
    fn strides_of_an_empty_output_may_be_any_numbers() {
        let (shape, strides) = ([3, 0], [usize::MAX, usize::MAX]);
        let output = TensorDesc::strided(2, DType::F32, &shape, &strides);
        let [first, second] = [[2, 0], [1, 0]];
        let inputs = [&first, &second].map(|shape| TensorDesc::packed(1, DType::F32, shape));
        assert_eq!(ConcatDesc { inputs: &inputs, output, axis: 0 }.operands(OP).unwrap().len(), 2);
        let padded = PadDesc { input: inputs[1], output, before: &[2, 0], value: 1.0 };
        assert!(padded.operands(OP).is_ok());
        let (empty, strides) = ([0, 0], [usize::MAX, 1]);
        let output = TensorDesc::strided(2, DType::F32, &empty, &strides);
        let repeated = RepeatDesc::new(TensorDesc::packed(1, DType::F32, &[5, 0]), output);
        assert!(repeated.operands(OP).is_ok());
        assert!(repeated.with_interleaved().operands(OP).is_ok());
        let (one, far) = ([2, 0], [usize::MAX / 2 + 1, 1]);
        let input = TensorDesc::strided(1, DType::F32, &one, &far);
        let sliced = SliceDesc::new(input, output, &[2, 0]).with_steps(&[3, 1]);
        assert!(sliced.operands(OP).is_ok());
    }

    #[test]
    fn an_empty_output_needs_no_input() {
        let (input, empty) = ([5, 2], [0, 2]);
        let input = TensorDesc::packed(1, DType::F32, &input);
        let output = TensorDesc::packed(2, DType::F32, &empty);
        let ([read, _], _) = SliceDesc::new(input, output, &[1, 0]).operands(OP).unwrap();
        assert_eq!(read.bytes, 0);
        let ([read, _], _) = RepeatDesc::new(input, output).operands(OP).unwrap();
        assert_eq!(read.bytes, 0);
    }

    #[test]
    fn a_step_that_is_never_taken_may_have_any_length() {
        let (column, single) = ([3, 4], [3, 1]);
        let input = TensorDesc::strided(1, DType::F32, &column, &[1, 3]);
        let output = TensorDesc::packed(2, DType::F32, &single);
        let desc = SliceDesc::new(input, output, &[0, 2]).with_steps(&[1, usize::MAX]);
        let (_, part) = desc.operands(OP).unwrap();
        assert_eq!(part, Part { offsets: [6, 0], loops: vec![(3, [1, 1])] });
    }
}
