//! Reductions.

use crate::operand::{Access, Operand};
use crate::{BackendError, BackendResult, Bound, DType, ReduceOp, checked_product};

use super::tensor::{Loop, MAX_RANK, TensorDesc, collapse, extent, require_distinct};
use super::{require_axis, require_float};

/// `output = op over axes of input`. The output has the input's extents but for those of the axes, in their
/// order.
///
/// Elements of f16 are reduced in f32. The output has the input's element type; of f16 it may be f32 as well,
/// and [`ArgMax`](ReduceOp::ArgMax) and [`ArgMin`](ReduceOp::ArgMin) give i32. Without axes, each number is
/// reduced by itself.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ReduceDesc<'a> {
    /// The reduction.
    pub op: ReduceOp,
    /// The input, of any element type; see [`ReduceOp::is_float_only`].
    pub input: TensorDesc<'a>,
    /// Dimensions of the input that are reduced, each at most once.
    pub axes: &'a [usize],
    /// Handle of the output.
    pub output: u64,
    /// Element type of the output.
    pub output_dtype: DType,
    /// Strides of the output in elements, one for each dimension that stays; `None` for packed row-major.
    pub output_strides: Option<&'a [usize]>,
}

handles!(ReduceDesc<'_>: input, output);

/// How a reduction walks its tensors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReduceLoops {
    /// Over the output, outermost first: strides of (input, output).
    pub kept: Vec<Loop<2>>,
    /// Over the elements that one output is reduced from, in row-major order of the axes: strides of (input).
    pub reduced: Vec<Loop<1>>,
    /// Elements in the output.
    pub outputs: usize,
    /// Elements that one output is reduced from.
    pub length: usize,
}

impl<'a> ReduceDesc<'a> {
    /// Into a packed output of the usual element type.
    #[must_use]
    pub const fn new(op: ReduceOp, input: TensorDesc<'a>, axes: &'a [usize], output: u64) -> Self {
        let output_dtype = if op.is_index() { DType::I32 } else { input.dtype };
        Self { op, input, axes, output, output_dtype, output_strides: None }
    }

    setters! {
        /// Gives the output another element type.
        pub fn with_output_dtype(output_dtype: DType);

        /// Gives the output strides, in elements, one for each extent that is left.
        pub fn with_output_strides(Some(output_strides): &'a [usize]);
    }

    /// Checks the shapes. Returns input and output, and how they are walked.
    ///
    /// # Errors
    /// [`Dtype`](BackendError::Dtype), [`Shape`](BackendError::Shape) for an axis that isn't there or is
    /// named twice, [`Overlap`](BackendError::Overlap) if two elements of the output lie at one place, and
    /// [`Limit`](BackendError::Limit) for more than [`MAX_RANK`] loops, 2³² elements in an output, or 2³¹ with
    /// an index.
    pub fn operands(&self, op: &'static str) -> BackendResult<([Operand; 2], ReduceLoops)> {
        self.check_dtypes(op)?;
        let shape = self.input.shape;
        let mut is_reduced = vec![false; shape.len()];
        for &axis in self.axes {
            require_axis(op, shape.len(), axis)?;
            if std::mem::replace(&mut is_reduced[axis], true) {
                return Err(BackendError::Shape { op, what: "axis", expected: Bound::Unlisted, got: axis });
            }
        }
        checked_product(op, "shape", shape)?;
        let input = self.input.dims(op, "input strides")?;
        let part = |reduced: bool| -> Vec<(usize, usize)> {
            let dims = input.iter().zip(&is_reduced).filter(|&(_, &is_reduced)| is_reduced == reduced);
            dims.map(|(&dim, _)| dim).collect()
        };
        let (kept, reduced) = (part(false), part(true));
        let extents: Vec<usize> = kept.iter().map(|&(extent, _)| extent).collect();
        let packed = TensorDesc::packed(self.output, self.output_dtype, &extents);
        let output = TensorDesc { strides: self.output_strides, ..packed }.dims(op, "output strides")?;
        require_distinct(op, "output", &output)?;
        let operands = [
            Operand::new(
                op,
                "input",
                self.input.ptr,
                self.input.dtype,
                extent(op, "input", &input)?,
                Access::Read,
            )?
            .with_offset(op, self.input.offset)?,
            Operand::new(
                op,
                "output",
                self.output,
                self.output_dtype,
                extent(op, "output", &output)?,
                Access::Write,
            )?,
        ];
        let length = reduced.iter().map(|&(extent, _)| extent).collect::<Vec<_>>();
        let loops = ReduceLoops {
            outputs: checked_product(op, "output", &extents)?,
            length: checked_product(op, "axes", &length)?,
            kept: collapse([&kept, &output]),
            reduced: collapse([&reduced]),
        };
        loops.check(op, self.op)?;
        Ok((operands, loops))
    }

    fn check_dtypes(&self, op: &'static str) -> BackendResult<()> {
        let (input, output) = (self.input.dtype, self.output_dtype);
        if self.op.is_float_only() {
            require_float(op, "input", input)?;
        }
        let fits = match (self.op.is_index(), input) {
            (true, _) => output == DType::I32,
            (false, DType::F16) => output.is_float(),
            (false, _) => output == input,
        };
        if fits { Ok(()) } else { Err(BackendError::Dtype { op, arg: "output", got: output }) }
    }
}

impl ReduceLoops {
    fn check(&self, op: &'static str, reduce: ReduceOp) -> BackendResult<()> {
        let limit = |what, requested, max| Err(BackendError::Limit { op, what, requested, max });
        let rank = self.kept.len() + self.reduced.len();
        if rank > MAX_RANK {
            return limit("dimensions that can't be merged", rank, MAX_RANK);
        }
        // Strides of 0 can name more numbers than there is memory.
        let longest = if reduce.is_index() { i32::MAX.cast_unsigned() } else { u32::MAX } as usize;
        if self.length > longest && self.outputs > 0 {
            return limit("numbers of an output", self.length, longest);
        }
        Ok(())
    }
}

/// The extents before, at and after `axis`, as products.
pub(crate) fn split_axis(
    op: &'static str,
    shape: &[usize],
    axis: usize,
) -> BackendResult<(usize, usize, usize)> {
    require_axis(op, shape.len(), axis)?;
    checked_product(op, "shape", shape)?;
    let outer = checked_product(op, "shape", &shape[..axis])?;
    let inner = checked_product(op, "shape", &shape[axis + 1..])?;
    Ok((outer, shape[axis], inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loops(shape: &[usize], axes: &[usize]) -> ReduceLoops {
        let input = TensorDesc::packed(1, DType::F32, shape);
        ReduceDesc::new(ReduceOp::Sum, input, axes, 2).operands("t").unwrap().1
    }

    #[test]
    fn neighbouring_axes_are_one_loop() {
        let all = loops(&[3, 4, 5], &[0, 1, 2]);
        assert_eq!((all.kept, all.reduced, all.outputs, all.length), (vec![], vec![(60, [1])], 1, 60));
        let channels = loops(&[2, 3, 4, 5], &[3, 0, 2]);
        assert_eq!(channels.kept, vec![(3, [20, 1])]);
        assert_eq!(channels.reduced, vec![(2, [60]), (20, [1])]);
        let none = loops(&[2, 3], &[]);
        assert_eq!((none.kept, none.reduced, none.length), (vec![(6, [1, 1])], vec![], 1));
        let empty = loops(&[3, 0, 4], &[1]);
        assert_eq!((empty.outputs, empty.length), (12, 0));
    }

    #[test]
    fn types_and_axes_are_checked() {
        let kind = |op, dtype, output_dtype, axes: &[usize]| {
            let mut desc = ReduceDesc::new(op, TensorDesc::packed(1, dtype, &[2, 3]), axes, 2);
            desc.output_dtype = output_dtype;
            desc.operands("t").err().map(|error| error.kind())
        };
        use crate::ErrorKind::{Dtype, Shape};
        use DType::{F16, F32, I32, U32};
        assert_eq!(kind(ReduceOp::Sum, F16, F32, &[1]), None);
        assert_eq!(kind(ReduceOp::ArgMax, F16, I32, &[1]), None);
        assert_eq!(kind(ReduceOp::ArgMax, F32, U32, &[1]), Some(Dtype));
        assert_eq!(kind(ReduceOp::Sum, F32, F16, &[1]), Some(Dtype));
        assert_eq!(kind(ReduceOp::Mean, I32, I32, &[1]), Some(Dtype));
        assert_eq!(kind(ReduceOp::Max, U32, U32, &[1]), None);
        assert_eq!(kind(ReduceOp::Sum, F32, F32, &[1, 1]), Some(Shape));
        assert_eq!(kind(ReduceOp::Sum, F32, F32, &[2]), Some(Shape));
    }
}
