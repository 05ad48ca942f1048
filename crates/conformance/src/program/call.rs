//! The calls that programs are made of.

use backend_api::quant::QuantFormat;
use backend_api::{BinaryOp, CompareOp, DType, ReduceOp, ScatterOp, UnaryOp};
use serde::{Deserialize, Serialize};

use super::text::{binary_op, compare_op, dtype, reduce_op, scatter_op, unary_op};

/// A variable that holds a handle, such as `s3`. From [`SHARED`](Self::SHARED) on it is one of the inputs
/// that all threads share and none writes. Freed handles stay in their variable, as those of a careless
/// caller would.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Slot(pub usize);

impl Slot {
    /// The first of the shared inputs.
    pub const SHARED: usize = 100;

    /// The first variable of graphs, and how many there are.
    pub(super) const GRAPHS: usize = 50;
    pub(super) const GRAPH_COUNT: usize = 3;

    /// The number of shared inputs.
    pub(super) const SHARED_COUNT: usize = 3;

    /// Whether it holds graphs rather than memory.
    pub(super) const fn is_graph(self) -> bool {
        Self::GRAPHS <= self.0 && self.0 < Self::SHARED
    }

    /// Whether it is one of the shared inputs.
    #[must_use]
    pub const fn is_shared(self) -> bool {
        self.0 >= Self::SHARED
    }
}

/// `count` rows of a table of `rows × columns`, by their indices.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are named as the arguments of the calls that they are for")]
pub struct Lookup {
    #[serde(with = "dtype")]
    pub dtype: DType,
    pub table: Slot,
    pub indices: Slot,
    pub dst: Slot,
    pub rows: usize,
    pub columns: usize,
    pub count: usize,
}

/// A matrix of `rows × columns`, and where the result of its rows goes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are named as the arguments of the calls that they are for")]
pub struct Rows {
    #[serde(with = "dtype")]
    pub dtype: DType,
    pub src: Slot,
    pub dst: Slot,
    pub rows: usize,
    pub columns: usize,
}

/// A tensor, the axis that an operation goes along, and where its result goes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields are named as the arguments of the calls that they are for")]
pub struct Axis {
    #[serde(with = "dtype")]
    pub dtype: DType,
    pub src: Slot,
    pub dst: Slot,
    pub shape: [usize; 3],
    pub axis: usize,
}

/// One call, or one step of an asynchronous one. `nth` counts the reads that were begun and not yet finished.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are named as the arguments of the calls that they are for")]
pub enum Call {
    /// Left out when `to` holds a live handle.
    Alloc {
        to: Slot,
        bytes: usize,
    },
    /// Left out when `to` holds a live handle.
    View {
        to: Slot,
        of: Slot,
        offset: usize,
        bytes: usize,
    },
    Free {
        slot: Slot,
    },
    /// Small numbers of `dtype` that depend on `seed`, cut off at `bytes`.
    Upload {
        dst: Slot,
        #[serde(with = "dtype")]
        dtype: DType,
        bytes: usize,
        seed: u64,
    },
    Read {
        src: Slot,
        bytes: usize,
    },
    /// An asynchronous read, polled once.
    BeginRead {
        src: Slot,
        bytes: usize,
    },
    PollRead {
        nth: usize,
    },
    FinishRead {
        nth: usize,
    },
    DropRead {
        nth: usize,
    },
    Fill {
        dst: Slot,
        #[serde(with = "dtype")]
        dtype: DType,
        n: usize,
        value: i64,
    },
    CopyBytes {
        dst: Slot,
        src: Slot,
        bytes: usize,
    },
    /// `rows × columns`, from rows `ld` elements apart into packed ones, or into packed columns.
    Copy {
        dst: Slot,
        src: Slot,
        #[serde(with = "dtype")]
        from: DType,
        #[serde(with = "dtype")]
        to: DType,
        rows: usize,
        columns: usize,
        ld: usize,
        transposed: bool,
    },
    Unary {
        #[serde(with = "unary_op")]
        op: UnaryOp,
        #[serde(with = "dtype")]
        dtype: DType,
        src: Slot,
        dst: Slot,
        n: usize,
    },
    /// `b` is a row of `columns` elements that is repeated, or as large as `a`.
    Binary {
        #[serde(with = "binary_op")]
        op: BinaryOp,
        #[serde(with = "dtype")]
        dtype: DType,
        a: Slot,
        b: Slot,
        dst: Slot,
        rows: usize,
        columns: usize,
        broadcast: bool,
    },
    Compare {
        #[serde(with = "compare_op")]
        op: CompareOp,
        #[serde(with = "dtype")]
        dtype: DType,
        a: Slot,
        b: Slot,
        dst: Slot,
        n: usize,
    },
    Where {
        #[serde(with = "dtype")]
        dtype: DType,
        condition: Slot,
        a: Slot,
        b: Slot,
        dst: Slot,
        n: usize,
    },
    Clamp {
        #[serde(with = "dtype")]
        dtype: DType,
        src: Slot,
        dst: Slot,
        n: usize,
        min: i64,
        max: i64,
    },
    Affine {
        #[serde(with = "dtype")]
        dtype: DType,
        src: Slot,
        dst: Slot,
        n: usize,
        scale: i64,
        bias: i64,
    },
    Reduce {
        #[serde(with = "reduce_op")]
        op: ReduceOp,
        #[serde(flatten)]
        along: Axis,
    },
    Cumsum {
        #[serde(flatten)]
        along: Axis,
        exclusive: bool,
        reverse: bool,
    },
    /// `C = A · B + beta · C`, packed.
    Matmul {
        #[serde(with = "dtype")]
        dtype: DType,
        a: Slot,
        b: Slot,
        c: Slot,
        m: usize,
        n: usize,
        k: usize,
        transposed: [bool; 2],
        beta: i64,
    },
    Gather(Lookup),
    Scatter {
        #[serde(with = "scatter_op")]
        op: ScatterOp,
        #[serde(with = "dtype")]
        dtype: DType,
        /// The element type of what arrives.
        #[serde(with = "dtype")]
        from: DType,
        table: Slot,
        indices: Slot,
        src: Slot,
        rows: usize,
        columns: usize,
        count: usize,
    },
    TopK {
        #[serde(with = "dtype")]
        dtype: DType,
        src: Slot,
        dst: Slot,
        values: Option<Slot>,
        rows: usize,
        columns: usize,
        k: usize,
        largest: bool,
    },
    /// The likeliest token of each row, by a temperature of 0 or by keeping one.
    Sample {
        #[serde(flatten)]
        logits: Rows,
        cold: bool,
        /// Tokens whose logits are halved or doubled, whichever is less.
        window: Option<Slot>,
        len: usize,
    },
    /// `C = residual + relu?(A · Bᵀ + bias)`, packed; the residual is C itself.
    QuantMatmul {
        format: usize,
        #[serde(with = "dtype")]
        from: DType,
        #[serde(with = "dtype")]
        to: DType,
        a: Slot,
        b: Slot,
        c: Slot,
        bias: Option<Slot>,
        m: usize,
        n: usize,
        k: usize,
        relu: bool,
        residual: bool,
    },
    QuantGather {
        format: usize,
        #[serde(flatten)]
        lookup: Lookup,
    },
    Dequantize {
        format: usize,
        #[serde(flatten)]
        matrix: Rows,
        ld: usize,
    },
    Permute(Rows),
    Slice {
        #[serde(with = "dtype")]
        dtype: DType,
        src: Slot,
        dst: Slot,
        extent: usize,
        start: usize,
        step: usize,
        n: usize,
    },
    Concat {
        #[serde(with = "dtype")]
        dtype: DType,
        a: Slot,
        b: Slot,
        dst: Slot,
        first: usize,
        second: usize,
    },
    Pad {
        #[serde(with = "dtype")]
        dtype: DType,
        src: Slot,
        dst: Slot,
        before: usize,
        n: usize,
        after: usize,
        value: i64,
    },
    /// Operations recorded for later. Left out when `to` holds a live graph.
    Capture {
        to: Slot,
        calls: Vec<Self>,
    },
    Replay {
        graph: Slot,
    },
    FreeGraph {
        graph: Slot,
    },
    /// Compiles `dst = a + b` in f32, and runs nothing.
    WarmUp {
        a: Slot,
        b: Slot,
        dst: Slot,
        n: usize,
    },
    Synchronize,
    /// Only of a [`Target`](super::Target) that can; nothing elsewhere.
    Flush,
    Trim,
    Budget {
        bytes: Option<usize>,
    },
    /// How long calls wait from now on; `None` for as long as usual.
    Timeout {
        millis: Option<u64>,
    },
    /// A buffer of zeros that the caller made. Left out when `to` holds a live handle.
    Import {
        to: Slot,
        bytes: usize,
    },
    /// The buffer behind a handle is destroyed, and with it what is recorded for it.
    DestroyBuffer {
        slot: Slot,
    },
    /// The device is lost.
    DestroyDevice,
    /// `init`: nothing on a device that works, a new one after a loss.
    Init,
}

/// The formats of quantised matrices in programs, which name them by their place here.
pub(super) const QUANT_FORMATS: [QuantFormat; 16] = [
    QuantFormat::Q8_0,
    QuantFormat::Q4_0,
    QuantFormat::Q4_K,
    QuantFormat::Q5_K,
    QuantFormat::Q6_K,
    QuantFormat::U4 { group: 16, zero_points: true },
    QuantFormat::U4 { group: 32, zero_points: false },
    QuantFormat::U4 { group: 256, zero_points: true },
    QuantFormat::Mxfp4,
    QuantFormat::Q4_1,
    QuantFormat::Q5_0,
    QuantFormat::Q5_1,
    QuantFormat::IQ4_NL,
    QuantFormat::IQ4_XS,
    QuantFormat::Q2_K,
    QuantFormat::Q3_K,
];

impl Call {
    /// Whether the call waits for the work before it, and so must tell what went wrong with it. A read of
    /// nothing has nothing to wait for.
    pub(super) const fn waits(&self) -> bool {
        matches!(self, Self::Read { bytes: 1.., .. } | Self::Synchronize)
    }

    /// Whether it is made on a [`Target`](super::Target) rather than on its backend.
    pub(super) const fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::Flush
                | Self::Timeout { .. }
                | Self::Import { .. }
                | Self::DestroyBuffer { .. }
                | Self::DestroyDevice
                | Self::Init
        )
    }

    /// The variable that the call puts a handle into.
    pub(super) const fn target(&self) -> Option<Slot> {
        match self {
            Self::Alloc { to, .. }
            | Self::View { to, .. }
            | Self::Import { to, .. }
            | Self::Capture { to, .. } => Some(*to),
            _ => None,
        }
    }
}
