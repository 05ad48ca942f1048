//! Vectors of heads and masks as attention's operands hold them.

use backend_api::DType;
use backend_api::desc::{AttentionMask, HeadLayout};

use crate::float::round_to;
use crate::oracle::q8_0;
use crate::rng::Rng;

/// How the vectors of one operand are laid out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Layout {
    /// `[batch, heads, seq, head_dim]`.
    Packed,
    /// `[batch, seq, heads, head_dim]`, as a projection leaves it.
    Tokens,
    /// Unused elements behind each head and token, as in a cache or a fused projection.
    Gaps,
}

/// Which rows of the mask are shared.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mask {
    None,
    /// One for each batch, head and query.
    Full,
    /// One for each query.
    Queries,
    /// One for each batch: padding of the keys.
    Keys,
    /// One for each head, as a bias by distance has it.
    Heads,
}

/// An operand as stored.
pub(super) struct Vectors {
    pub(super) data: Vec<f64>,
    at: HeadLayout,
    /// What the descriptor says: nothing where the layout is packed.
    pub(super) strides: Option<HeadLayout>,
    head_dim: usize,
}

impl Vectors {
    /// Vectors between which gaps are multiples of `unit`.
    pub(super) fn new(
        [batch, heads, seq, d]: [usize; 4],
        layout: Layout,
        unit: usize,
        fill: &mut dyn FnMut(usize) -> Vec<f64>,
    ) -> Self {
        let (gap, tail) = (3 * unit, 5 * unit);
        let at = match layout {
            Layout::Packed => HeadLayout { offset: 0, batch: heads * seq * d, head: seq * d, token: d },
            Layout::Tokens => HeadLayout { offset: 0, batch: heads * seq * d, head: d, token: heads * d },
            Layout::Gaps => HeadLayout {
                offset: 0,
                batch: seq * (heads * (d + gap) + tail),
                head: d + gap,
                token: heads * (d + gap) + tail,
            },
        };
        let mut vectors = Self {
            data: Vec::new(),
            at,
            strides: (!matches!(layout, Layout::Packed)).then_some(at),
            head_dim: d,
        };
        let last = vectors.start(batch - 1, heads - 1, seq - 1) + d;
        vectors.data = vec![f64::NAN; last];
        for row in 0..batch * heads * seq {
            let start = vectors.start(row / seq / heads, row / seq % heads, row % seq);
            vectors.data[start..][..d].copy_from_slice(&fill(d));
        }
        vectors
    }

    /// Changes every vector, by the number of its token.
    pub(super) fn change(&mut self, shape: [usize; 3], change: impl Fn(usize, &mut [f64])) {
        self.change_each(shape, |[_, token], vector| change(token, vector));
    }

    /// Changes every vector, by the numbers of its batch and its token.
    pub(super) fn change_each(
        &mut self,
        [batch, heads, seq]: [usize; 3],
        change: impl Fn([usize; 2], &mut [f64]),
    ) {
        for row in 0..batch * heads * seq {
            let (b, token) = (row / seq / heads, row % seq);
            let start = self.start(b, row / seq % heads, token);
            change([b, token], &mut self.data[start..][..self.head_dim]);
        }
    }

    /// Makes blocks of Q8_0 of the numbers, which become those that blocks stand for. Returns their words.
    pub(super) fn quantise(&mut self) -> Vec<f64> {
        let words = q8_0::words(&self.data);
        let bytes: Vec<u8> = words.iter().flat_map(|&word| (word as u32).to_le_bytes()).collect();
        self.data = q8_0::numbers(&bytes);
        words
    }

    pub(super) fn start(&self, batch: usize, head: usize, token: usize) -> usize {
        batch * self.at.batch + head * self.at.head + token * self.at.token
    }

    pub(super) fn vector(&self, batch: usize, head: usize, token: usize) -> &[f64] {
        &self.data[self.start(batch, head, token)..][..self.head_dim]
    }
}

/// A mask with small numbers, hidden keys, a very low number and some rows that hide everything. Of u32, 0
/// hides a key.
pub(super) struct MaskRows {
    pub(super) data: Vec<f64>,
    pub(super) dtype: DType,
    pub(super) desc: AttentionMask,
}

impl MaskRows {
    pub(super) fn new(
        rng: &mut Rng,
        mask: Mask,
        dtype: DType,
        [batch, heads, queries, keys]: [usize; 4],
    ) -> Self {
        // One row may be longer than it needs to be.
        let row = keys + 2;
        let (rows, strides) = match mask {
            Mask::None => (0, [0, 0, 0]),
            Mask::Full => (batch * heads * queries, [heads * queries * row, queries * row, row]),
            Mask::Queries => (queries, [0, 0, row]),
            Mask::Keys => (batch, [row, 0, 0]),
            Mask::Heads => (heads * queries, [0, queries * row, row]),
        };
        let hide_all: Vec<bool> = (0..rows).map(|_| rng.one_in(6)).collect();
        let mut number = |i: usize| match rng.below(8) {
            _ if dtype == DType::U32 && hide_all[i / row] => 0.0,
            below if dtype == DType::U32 => [0.0, 1.0, f64::from(u32::MAX), 0.0][below % 4],
            _ if i % row >= keys => f64::NAN,
            _ if hide_all[i / row] => f64::NEG_INFINITY,
            // The first key has an ordinary number, so that a very low one, beside which scores lose their
            // digits, never rules a row.
            0 if !i.is_multiple_of(row) => f64::NEG_INFINITY,
            1 if !i.is_multiple_of(row) => -60_000.0,
            _ => round_to(dtype, rng.uniform(-2.0, 2.0)),
        };
        Self {
            data: (0..rows * row).map(&mut number).collect(),
            dtype,
            desc: AttentionMask {
                ptr: 0,
                batch_stride: strides[0],
                head_stride: strides[1],
                query_stride: strides[2],
            },
        }
    }

    /// Changes every row.
    pub(super) fn change(&mut self, keys: usize, change: impl Fn(&mut [f64])) {
        self.data.chunks_exact_mut(keys + 2).for_each(|row| change(&mut row[..keys]));
    }

    pub(super) fn at(&self, batch: usize, head: usize, query: usize, key: usize) -> f64 {
        let mask = &self.desc;
        let row = batch * mask.batch_stride + head * mask.head_stride + query * mask.query_stride;
        match self.data.get(row + key) {
            Some(&seen) if self.dtype == DType::U32 && seen == 0.0 => f64::NEG_INFINITY,
            Some(&number) if self.dtype != DType::U32 => number,
            _ => 0.0,
        }
    }
}
