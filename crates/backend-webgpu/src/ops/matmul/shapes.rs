//! The shapes of the kernels, that is the sizes of their tiles: what a plan holds of a kernel. How each is chosen and
//! launched is in the kernel's own file, which implements `Family` and `GemmKernel` for it. Those of gemm/tiled and
//! gemm/cooperative are [`Tile`](crate::ops::shared::tile::Tile) and
//! [`CooperativeTile`](crate::ops::shared::cooperative_tile::CooperativeTile).

use crate::ops::shared::tile::StepTime;

/// What an invocation of gemm/outer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outer {
    /// Rows and columns of an invocation.
    pub(super) rows: usize,
    pub(super) columns_per_thread: usize,
    /// Values of k that are read at once.
    pub(super) depth: usize,
    /// Invocations of a workgroup that share rows, if it makes a tile of C; else it makes what follows along
    /// C's rows.
    pub(super) across: Option<usize>,
}

/// How a workgroup of gemm/gemv shares its work, and which products it does it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gemv {
    /// Invocations that share a sum.
    pub(super) threads: usize,
    /// Whether the product is transposed as a whole, which makes one row of one column.
    pub(super) transposed: bool,
}

/// How a workgroup of gemm/gemv_dot shares its work, and which products it does it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GemvDot {
    /// Columns of an invocation.
    pub(super) columns_per_thread: usize,
    /// Vectors of each column that an invocation reads at once.
    pub(super) prefetch: usize,
    /// Whether the product is transposed as a whole, which makes one row of one column.
    pub(super) transposed: bool,
}

/// How many subgroups of gemm/skinny_cooperative share k, and which products it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SkinnyCooperative {
    pub(super) subgroups: usize,
    /// Whether the product is transposed as a whole, which makes few rows of few columns.
    pub(super) transposed: bool,
}

/// How a workgroup of gemm/skinny shares its work, and which products it does it for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Skinny {
    /// Invocations that share a sum.
    pub(super) threads: usize,
    /// Columns of an invocation, or those of a vector if these are more and B's rows don't run along k.
    pub(super) columns_per_thread: usize,
    /// Vectors of each column that an invocation reads at once, if there is room for A; else vec4s of rows.
    pub(super) prefetch: usize,
    /// Rows of a workgroup.
    pub(super) rows: usize,
    /// Elements of A in workgroup memory at most.
    pub(super) staged: usize,
    /// Whether the operand of few rows or columns is read in vec4s.
    pub(super) vec4s: bool,
    /// Whether zeros that fill up the first k-block may reach into its second half.
    pub(super) late_zeros: bool,
    /// Whether the product is transposed as a whole.
    pub(super) transposed: bool,
}

/// The sizes of the tile of a workgroup of gemm/unstaged, and how its subgroups share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unstaged {
    pub(super) m: usize,
    pub(super) n: usize,
    /// Rows and columns of parts.
    pub(super) parts: [usize; 2],
    /// Subgroups that share a part along k.
    pub(super) sharers: usize,
    /// Steps of k that are read at once.
    pub(super) prefetch: usize,
    /// Nanoseconds of a k-block where B's rows run across k, and along it.
    pub(super) k_block_times: [StepTime; 2],
    /// Whether the product is transposed as a whole, which makes few rows of few columns.
    pub(super) transposed: bool,
}

/// The shape of gemm/direct, which has one tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Direct;
