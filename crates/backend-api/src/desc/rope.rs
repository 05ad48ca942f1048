//! Rotary position embedding.

use crate::operand::{Access, Operand};
use crate::size::{strided_extent, strides_are_injective};
use crate::{BackendError, BackendResult, DType, checked_add, checked_product};

use super::{HeadLayout, require_at_least, require_float, require_multiple};

/// Which two elements of a vector are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// `i` and `i + rotary_dim/2`, as GPT-NeoX and Llama (in its Hugging Face form) do.
    Half,
    /// `2i` and `2i + 1`, as the paper and GPT-J do.
    Interleaved,
}

/// The extents of a rotation: tensors `[batch, heads, seq, head_dim]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RopeShape {
    /// Number of sequences.
    pub batch: usize,
    /// Number of heads.
    pub heads: usize,
    /// Tokens in a sequence.
    pub seq: usize,
    /// Elements in a vector.
    pub head_dim: usize,
}

/// The tables of a rotation, f32 `[max_position, rotary_dim/2]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RopeTables {
    /// Handle of the cosines.
    pub cos: u64,
    /// Handle of the sines.
    pub sin: u64,
    /// Rows in each.
    pub max_position: usize,
}

/// Rotates pairs of elements in each vector by an angle that depends on the token's position:
/// `(x, y) → (x·cos − y·sin, x·sin + y·cos)` with `cos[position, i]` and `sin[position, i]` for pair `i`.
/// Elements from `rotary_dim` on are copied. The output may be exactly the input, if it has its type. (Su et al., "RoFormer",
/// 2021.)
///
/// The tables are f32 `[max_position, rotary_dim/2]`; [`rope_tables`] makes the usual ones. The position of
/// token `t` in batch `b` is `positions[b·seq + t]`, or `start + t` without positions; past the tables, the
/// last row is used.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RopeDesc {
    /// Handle of the input.
    pub input: u64,
    /// Handle of the output.
    pub output: u64,
    /// Element type of the input.
    pub dtype: DType,
    /// Element type of the output, floating-point too; the input's unless given.
    pub output_dtype: DType,
    /// Number of sequences.
    pub batch: usize,
    /// Number of heads.
    pub heads: usize,
    /// Tokens in a sequence.
    pub seq: usize,
    /// Elements in a vector.
    pub head_dim: usize,
    /// How many of them are rotated: even, at most `head_dim`.
    pub rotary_dim: usize,
    /// Which are paired.
    pub style: RopeStyle,
    /// Handle of the cosines.
    pub cos: u64,
    /// Handle of the sines.
    pub sin: u64,
    /// Rows in the tables.
    pub max_position: usize,
    /// Position of the first token.
    pub start: usize,
    /// Handle of `batch·seq` positions of u32, used instead of `start`.
    pub positions: Option<u64>,
    /// Layout of the input; packed `[batch, heads, seq, head_dim]` if `None`.
    pub input_layout: Option<HeadLayout>,
    /// Layout of the output; packed `[batch, heads, seq, head_dim]` if `None`.
    pub output_layout: Option<HeadLayout>,
}

handles!(RopeDesc: input, output, cos, sin, positions);

impl RopeDesc {
    /// Rotates whole packed vectors from position 0.
    #[must_use]
    pub const fn new(
        dtype: DType,
        input: u64,
        output: u64,
        tables: RopeTables,
        shape: RopeShape,
        style: RopeStyle,
    ) -> Self {
        let RopeTables { cos, sin, max_position } = tables;
        let RopeShape { batch, heads, seq, head_dim } = shape;
        Self {
            input,
            output,
            dtype,
            output_dtype: dtype,
            batch,
            heads,
            seq,
            head_dim,
            rotary_dim: head_dim,
            style,
            cos,
            sin,
            max_position,
            start: 0,
            positions: None,
            input_layout: None,
            output_layout: None,
        }
    }

    setters! {
        /// Rounds the output to another type, such as the f16 of a cache.
        pub fn with_output_dtype(output_dtype: DType);

        /// Rotates only the first elements of a vector.
        pub fn with_rotary_dim(rotary_dim: usize);

        /// Begins at another position.
        pub fn with_start(start: usize);

        /// Takes the positions of the tokens from device memory.
        pub fn with_positions(Some(positions): u64);

        /// Says where the vectors of the input lie.
        pub fn with_input_layout(Some(input_layout): HeadLayout);

        /// Says where the vectors of the output lie.
        pub fn with_output_layout(Some(output_layout): HeadLayout);
    }

    /// The layouts in use: of input and output. They saturate for sizes that [`operands`](Self::operands)
    /// refuses.
    #[must_use]
    pub fn layouts(&self) -> [HeadLayout; 2] {
        let packed = HeadLayout::packed(self.heads, self.seq, self.head_dim);
        [self.input_layout.unwrap_or(packed), self.output_layout.unwrap_or(packed)]
    }

    /// Checks the shapes. Returns input, output, cos, sin and positions.
    pub fn operands(&self, op: &'static str) -> BackendResult<[Operand; 5]> {
        require_float(op, "dtype", self.dtype)?;
        require_float(op, "output_dtype", self.output_dtype)?;
        require_multiple(op, "rotary_dim", 2, self.rotary_dim)?;
        require_at_least(op, "head_dim", self.rotary_dim, self.head_dim)?;
        let elements = checked_product(op, "input", &[self.batch, self.heads, self.seq, self.head_dim])?;
        if elements > 0 && self.rotary_dim > 0 {
            let needed = match self.positions {
                Some(_) => 1,
                None => checked_add(op, "start", self.start, self.seq)?,
            };
            require_at_least(op, "max_position", needed, self.max_position)?;
        }

        let [input, output] = self.layouts();
        let dims = |layout: HeadLayout| layout.dims([self.batch, self.heads, self.seq], self.head_dim);
        if !strides_are_injective(&mut dims(output)) {
            return Err(BackendError::Overlap { op, a: "output", b: "output" });
        }
        // Whether they lie at the same place is for the check of the memory to tell.
        let alike = dims(input) == dims(output) && self.dtype == self.output_dtype;
        let in_place = if alike { Access::ReadInPlace } else { Access::Read };
        let tensor = |arg, ptr, dtype, layout: HeadLayout, access| {
            let reached = strided_extent(op, arg, dims(layout).into_iter())?;
            Operand::new(op, arg, ptr, dtype, reached, access)?.with_offset(op, layout.offset)
        };
        let rows = if elements == 0 { 0 } else { self.max_position };
        let table = checked_product(op, "tables", &[rows, self.rotary_dim / 2])?;
        let tokens =
            if elements == 0 { 0 } else { checked_product(op, "positions", &[self.batch, self.seq])? };
        Ok([
            tensor("input", self.input, self.dtype, input, in_place)?,
            tensor("output", self.output, self.output_dtype, output, Access::Write)?,
            Operand::new(op, "cos", self.cos, DType::F32, table, Access::Read)?,
            Operand::new(op, "sin", self.sin, DType::F32, table, Access::Read)?,
            Operand::optional(op, "positions", self.positions, DType::U32, tokens, Access::Read)?,
        ])
    }
}

/// The usual tables, cosines then sines: the angle of pair `i` at position `p` is
/// `p · base^(−2i/rotary_dim)`, computed in f64. `base` is 10,000 in the paper.
#[must_use]
pub fn rope_tables(base: f64, rotary_dim: usize, max_position: usize) -> (Vec<f32>, Vec<f32>) {
    let pairs = rotary_dim / 2;
    let angles = (0..max_position).flat_map(|position| {
        (0..pairs).map(move |i| position as f64 * base.powf(-2.0 * i as f64 / rotary_dim as f64))
    });
    angles.map(|angle| (angle.cos() as f32, angle.sin() as f32)).unzip()
}
