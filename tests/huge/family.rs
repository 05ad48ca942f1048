//! A family: one call with a large operand, the calls that it amounts to, and samples of its results.

use std::ops::Range;
use std::rc::Rc;

use backend_api::{Command, DType};

/// Receives a call; its handles are numbers of operands, from 1 on.
pub(crate) type Run<'a> = &'a mut dyn FnMut(&'static str, Command<'_>);

/// How large operands are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Bytes of a large operand.
    pub(crate) bytes: usize,
    /// Bytes that are well within what the device binds; a power of two.
    pub(crate) part: usize,
    /// Whether the device has f16.
    pub(crate) f16: bool,
}

impl Size {
    /// Elements of f32 in a large operand.
    pub(crate) fn numbers(&self) -> usize {
        self.bytes / 4
    }

    /// Columns of a matrix that is a large operand: far fewer than rows.
    pub(crate) fn columns(&self) -> usize {
        let side = self.numbers().isqrt() / 8;
        (1 << side.max(32).ilog2()).min(4096)
    }

    pub(crate) fn is_large(&self) -> bool {
        self.columns() >= 1024
    }

    /// The calls within the device's limits that a large operand needs.
    pub(crate) fn parts(&self) -> usize {
        self.bytes.div_ceil(self.part)
    }
}

/// Device memory and what is in it.
pub(crate) struct Buffer {
    pub(crate) bytes: usize,
    pub(crate) fill: Fill,
}

#[derive(Clone)]
pub(crate) enum Fill {
    /// Random numbers, normally distributed.
    Normal(DType),
    /// Equal elements.
    Value(DType, f64),
    /// Weights of Q8_0: so many bytes of random quants, and equal scales behind them.
    Quants(usize),
    /// Bytes of the host.
    Given(Vec<u8>),
    /// What no result is.
    Nan,
}

/// A large operand, or one that is written.
pub(crate) fn buffer(bytes: usize, fill: Fill) -> Buffer {
    Buffer { bytes, fill }
}

/// Random numbers of f32.
pub(crate) fn numbers(n: usize) -> Buffer {
    buffer(4 * n, Fill::Normal(DType::F32))
}

/// Memory for `n` results of f32.
pub(crate) fn results(n: usize) -> Buffer {
    buffer(4 * n, Fill::Nan)
}

/// Indices and other words.
pub(crate) fn words(words: &[u32]) -> Buffer {
    buffer(4 * words.len(), Fill::Given(bytemuck::cast_slice(words).to_vec()))
}

/// Bytes of an operand.
#[derive(Clone, Debug)]
pub(crate) enum Piece {
    /// A part of the buffer of this number.
    Part(usize, Range<usize>),
    /// Bytes of the host.
    Given(Vec<u8>),
}

/// A call on operands that consist of pieces. Those of calls that are launched on the device as they are have one each.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) operands: Vec<Vec<Piece>>,
    pub(crate) make: Rc<dyn Fn(Run<'_>)>,
}

impl Call {
    pub(crate) fn new(operands: Vec<Vec<Piece>>, make: impl Fn(Run<'_>) + 'static) -> Self {
        Self { operands, make: Rc::new(make) }
    }
}

/// Numbers that must be found in a buffer after the call.
pub(crate) struct Values {
    pub(crate) buffer: usize,
    pub(crate) byte: usize,
    pub(crate) want: Vec<f32>,
}

/// One call with a large operand.
pub(crate) struct Family {
    pub(crate) buffers: Vec<Buffer>,
    /// Bytes that are written into a buffer after it was filled.
    pub(crate) planted: Vec<(usize, usize, Vec<u8>)>,
    pub(crate) whole: Call,
    /// Calls within the device's limits that do as much as the whole together.
    pub(crate) parts: Vec<Call>,
    /// Of a call with indices, on large operands: what it would be for a caller that knows the indices. Nothing is required
    /// of the whole beside it.
    pub(crate) known: Vec<Call>,
    /// Calls on pieces of the whole's operands, whose results the CPU's are compared with.
    pub(crate) samples: Vec<Call>,
    pub(crate) values: Vec<Values>,
    /// Whether the contract has such an operand refused.
    pub(crate) refused: bool,
}

impl Family {
    pub(crate) fn new(buffers: Vec<Buffer>, whole: Call) -> Self {
        Self {
            buffers,
            planted: Vec::new(),
            whole,
            parts: Vec::new(),
            known: Vec::new(),
            samples: Vec::new(),
            values: Vec::new(),
            refused: false,
        }
    }

    pub(crate) fn refused(self) -> Self {
        Self { refused: true, ..self }
    }
}

/// An operand of a family that is divided along its items.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operand {
    /// The buffer of this number, and bytes of it for each item.
    Items(usize, usize),
    /// All of a buffer.
    Shared(usize),
}

/// Where items are looked at: the first and the last ones, those around the ends of bindings, and some between.
pub(crate) fn places(items: usize, in_part: usize, sampled: usize) -> Vec<usize> {
    let last = items.saturating_sub(sampled);
    let seams = (1..).map(|part| part * in_part).take_while(|&at| at < items);
    let mut places: Vec<usize> = seams.map(|at| at.saturating_sub(sampled / 2)).collect();
    let step = places.len().div_ceil(6).max(1);
    places = places.into_iter().step_by(step).collect();
    places.extend([0, last, last / 7, last / 3 + 1, last / 5 * 4 + 1]);
    places.iter_mut().for_each(|place| *place = (*place).min(last));
    places.sort_unstable();
    places.dedup();
    places
}

/// A family whose operands have equally many bytes for each of `items` items; `make` makes the call of some items, from
/// the first one on, and `sampled` of them are compared at each place.
pub(crate) fn along(
    size: &Size,
    buffers: Vec<Buffer>,
    items: usize,
    sampled: usize,
    operands: &[Operand],
    make: impl Fn(usize, usize, Run<'_>) + 'static,
) -> Family {
    let make = Rc::new(make);
    let call = |first: usize, count: usize| {
        let operands = operands.iter().map(|operand| match *operand {
            Operand::Items(buffer, bytes) => {
                vec![Piece::Part(buffer, first * bytes..(first + count) * bytes)]
            }
            Operand::Shared(buffer) => vec![Piece::Part(buffer, 0..buffers[buffer].bytes)],
        });
        let make = Rc::clone(&make);
        Call::new(operands.collect(), move |run| make(first, count, run))
    };
    let bytes = operands.iter().map(|operand| match *operand {
        Operand::Items(_, bytes) => bytes,
        Operand::Shared(_) => 1,
    });
    let in_part = (size.part / bytes.max().unwrap_or(1)).max(1);
    let parts = (0..items).step_by(in_part).map(|first| call(first, in_part.min(items - first))).collect();
    let sampled = sampled.min(items);
    let samples = places(items, in_part, sampled).into_iter().map(|first| call(first, sampled)).collect();
    let whole = call(0, items);
    Family { parts, samples, ..Family::new(buffers, whole) }
}
