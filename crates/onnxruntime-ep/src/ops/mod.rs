//! ONNX's operators in operations of a backend.
//!
//! Each family has a table of its operators: the name, the element types, what else must be known before a
//! node is taken, and the function that runs it. Integers, truth values and short lists are computed on the
//! host ([`host`](crate::host)), everything else on the device.

mod attention;
mod cache;
mod call;
mod device;
mod einsum;
mod elementwise;
mod fourier;
mod functions;
mod grid;
mod image;
mod index;
mod logic;
mod matrix;
mod movement;
mod multi_head;
mod norm;
mod pool;
mod quantized;
mod recurrent;
mod reduce;
mod resize;
pub(crate) mod shape;
mod structure;
mod window;

pub(crate) use call::Call;
pub(crate) use device::Device;
pub(crate) use einsum::{Form, product_form};

use crate::error::Result;
use crate::kind::Kind;
use crate::model::{Graph, Node};
use crate::tensor::Tensor;

/// The domain of ONNX Runtime's own operators.
pub(crate) const MICROSOFT: &str = "com.microsoft";

/// The domain of operators that only fusions make.
pub(crate) const OWN: &str = "webgpu.compute";

/// Element types of an operator's first input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    /// Floating-point numbers.
    Float,
    /// Floating-point numbers and integers.
    Number,
    /// Truth values.
    Truth,
    /// Whatever the provider knows.
    Any,
}

impl Kinds {
    /// Whether a type is one of them.
    pub(crate) const fn has(self, kind: Kind) -> bool {
        match self {
            Self::Float => kind.is_float(),
            Self::Number => !(kind.is_bytes() || matches!(kind, Kind::Bool)),
            Self::Truth => matches!(kind, Kind::Bool),
            Self::Any => true,
        }
    }
}

/// What must hold of a node before it is taken; the error says why it isn't.
pub(crate) type Check = fn(&Graph, &Node) -> std::result::Result<(), String>;

/// Runs a node. Gives its outputs in order, as many as anybody may ask for.
pub(crate) type Run = fn(&Call<'_>) -> Result<Vec<Tensor>>;

/// A row of a table of operators.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operator {
    /// Its domain, empty for ONNX's own.
    domain: &'static str,
    /// Its name.
    name: &'static str,
    /// Element types of the first input.
    pub(crate) kinds: Kinds,
    /// What else must hold.
    pub(crate) check: Check,
    /// What runs it.
    pub(crate) run: Run,
    /// Whether it reads views as they are; other operators are given packed tensors.
    pub(crate) takes_views: bool,
    /// Whether inputs and outputs may be bytes.
    pub(crate) takes_bytes: bool,
}

impl Operator {
    /// An operator of ONNX's that takes every node with these element types.
    pub(crate) const fn new(name: &'static str, kinds: Kinds, run: Run) -> Self {
        Self { domain: "", name, kinds, check: |_, _| Ok(()), run, takes_views: false, takes_bytes: false }
    }

    /// Looks closer at nodes.
    pub(crate) const fn with_check(self, check: Check) -> Self {
        Self { check, ..self }
    }

    /// Reads strided views, too.
    pub(crate) const fn of_views(self) -> Self {
        Self { takes_views: true, ..self }
    }

    /// Knows what bytes are.
    pub(crate) const fn of_bytes(self) -> Self {
        Self { takes_bytes: true, ..self }
    }

    /// An operator of ONNX Runtime's own.
    pub(crate) const fn of_microsoft(self) -> Self {
        Self { domain: MICROSOFT, ..self }
    }

    /// An operator that only fusions make.
    pub(crate) const fn of_own(self) -> Self {
        Self { domain: OWN, ..self }
    }
}

const FAMILIES: [&[Operator]; 20] = [
    elementwise::OPERATORS,
    functions::OPERATORS,
    logic::OPERATORS,
    reduce::OPERATORS,
    matrix::OPERATORS,
    image::OPERATORS,
    pool::OPERATORS,
    attention::OPERATORS,
    norm::OPERATORS,
    movement::OPERATORS,
    index::OPERATORS,
    structure::OPERATORS,
    resize::OPERATORS,
    grid::OPERATORS,
    fourier::OPERATORS,
    quantized::OPERATORS,
    cache::OPERATORS,
    recurrent::OPERATORS,
    einsum::OPERATORS,
    multi_head::OPERATORS,
];

/// The row of a node's operator.
pub(crate) fn find(node: &Node) -> Option<&'static Operator> {
    let domain = if node.domain == "ai.onnx" { "" } else { node.domain.as_str() };
    FAMILIES.iter().copied().flatten().find(|row| row.name == node.operator && row.domain == domain)
}

/// Whether the node makes a matrix product whose arithmetic its attribute `math` may name.
pub(crate) fn takes_math(node: &Node) -> bool {
    ["MatMul", "Gemm", "FusedMatMul"].contains(&node.operator.as_str())
}

/// Operators for which a device is worth its transfers.
const HEAVY: [&str; 17] = [
    "MatMul",
    "Gemm",
    "Conv",
    "ConvTranspose",
    "Attention",
    "FusedMatMul",
    "MatMulNBits",
    "MultiHeadAttention",
    "GroupQueryAttention",
    "LSTM",
    "GRU",
    "RNN",
    "Einsum",
    "MatMulInteger",
    "ConvInteger",
    "QLinearMatMul",
    "QLinearConv",
];

/// Whether a device is worth its transfers for this node alone.
pub(crate) fn is_heavy(node: &Node) -> bool {
    HEAVY.contains(&node.operator.as_str())
}

#[cfg(test)]
mod values;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn heavy_operators_have_rows() {
        let names: HashSet<&str> = FAMILIES.iter().copied().flatten().map(|row| row.name).collect();
        assert!(HEAVY.iter().all(|name| names.contains(name)));
    }

    #[test]
    fn no_operator_has_two_rows() {
        let mut seen = HashSet::new();
        for row in FAMILIES.iter().copied().flatten() {
            assert!(seen.insert((row.domain, row.name)), "{}", row.name);
        }
    }
}
