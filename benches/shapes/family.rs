//! The families of operations that are swept.

use std::fmt;

/// A family, which says what a shape's variant and sizes mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `nn`, `nt`, `tn`, `tt` of m×n×k.
    Gemm,
    /// `nn`, `nt`, `tn`, `tt` of batch×m×n×k.
    Batched,
    /// `nn` and `nt` of m×n×k with at most 256 rows.
    FewRows,
    /// `nchw` and `nhwc` of n×c×h×w×filters×window×stride×padding×groups.
    Conv,
    /// `full` and `causal` of batch×heads×KV heads×queries×keys×head size.
    Attention,
    /// One query: `full` of batch×heads×KV heads×1×keys×head size.
    Decode,
    /// `softmax`, `log_softmax`, `layer_norm`, `rms_norm` of rows×columns.
    Rows,
    /// `sum_rows`, `sum_columns`, `max_rows` of rows×columns.
    Reduce,
    /// `add`, `gelu`, `silu`, `copy`, `cast`, `permute`, `add_row` of rows×columns.
    Elementwise,
}

impl Family {
    /// All, in the order of the output.
    pub const ALL: [Self; 9] = [
        Self::Gemm,
        Self::Batched,
        Self::FewRows,
        Self::Conv,
        Self::Attention,
        Self::Decode,
        Self::Rows,
        Self::Reduce,
        Self::Elementwise,
    ];

    /// The name in the first column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gemm => "gemm",
            Self::Batched => "batched",
            Self::FewRows => "few_rows",
            Self::Conv => "conv",
            Self::Attention => "attention",
            Self::Decode => "decode",
            Self::Rows => "rows",
            Self::Reduce => "reduce",
            Self::Elementwise => "elementwise",
        }
    }

    /// The family of a name.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|family| family.name() == name);
        found.ok_or_else(|| format!("there is no family {name:?}"))
    }

    /// The names of the third column.
    pub const fn variants(self) -> &'static [&'static str] {
        match self {
            Self::Gemm | Self::Batched => &["nn", "nt", "tn", "tt"],
            Self::FewRows => &["nn", "nt"],
            Self::Conv => &["nchw", "nhwc"],
            Self::Attention => &["full", "causal"],
            Self::Decode => &["full"],
            Self::Rows => &["softmax", "log_softmax", "layer_norm", "rms_norm"],
            Self::Reduce => &["sum_rows", "sum_columns", "max_rows"],
            Self::Elementwise => &["add", "gelu", "silu", "copy", "cast", "permute", "add_row"],
        }
    }

    /// How many sizes the fourth column has.
    pub const fn rank(self) -> usize {
        match self {
            Self::Gemm | Self::FewRows => 3,
            Self::Batched => 4,
            Self::Conv => 9,
            Self::Attention | Self::Decode => 6,
            Self::Rows | Self::Reduce | Self::Elementwise => 2,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
