//! `rope`: both styles, partial rotation, positions, starts and layouts.

use backend_api::DType;
use backend_api::desc::{HeadLayout, RopeDesc, RopeShape, RopeStyle, RopeTables};

use crate::case::Case;
use crate::data::uniform;
use crate::grid::pairwise;
use crate::oracle::rope::rope;
use crate::rng::Rng;
use crate::trial::Trial;
use crate::want::Want;

/// `head_dim` and `rotary_dim`.
const DIMS: [(usize, usize); 10] =
    [(2, 2), (4, 4), (8, 4), (5, 4), (7, 0), (32, 32), (64, 64), (80, 32), (128, 128), (66, 2)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Positions {
    /// From 0 on.
    Zero,
    /// From 5 on.
    Start,
    /// Listed, some past the tables.
    Listed,
    /// Listed, beside a start that no position goes with.
    ListedBesideStart,
}

const POSITIONS: [Positions; 3] = [Positions::Zero, Positions::Start, Positions::Listed];

#[derive(Clone, Copy, Debug)]
struct Rope {
    style: RopeStyle,
    dtype: DType,
    output_dtype: DType,
    dims: (usize, usize),
    positions: Positions,
    batch: usize,
    heads: usize,
    seq: usize,
    /// Whether input and output are `[batch, seq, heads, head_dim]` instead of
    /// `[batch, heads, seq, head_dim]`.
    tokens_first: [bool; 2],
    in_place: bool,
}

pub(super) fn cases() -> Vec<Case> {
    let counts = [2, 2, DIMS.len(), 3, 3, 3, 4, 2, 2, 2];
    let seeds = ["rope 1", "rope 2", "rope 3", "rope 4"];
    let covering = seeds.into_iter().flat_map(|seed| pairwise(&counts, seed)).map(|row| {
        let in_place = row[9] == 1;
        Rope {
            style: [RopeStyle::Half, RopeStyle::Interleaved][row[0]],
            dtype: [DType::F32, DType::F16][row[1]],
            output_dtype: [DType::F32, DType::F16][row[1]],
            dims: DIMS[row[2]],
            positions: POSITIONS[row[3]],
            batch: row[4] + 1,
            heads: [1, 2, 5][row[5]],
            seq: [1, 2, 7, 33][row[6]],
            tokens_first: [row[7] == 1, if in_place { row[7] == 1 } else { row[8] == 1 }],
            in_place,
        }
    });
    let empty = [[0, 2, 3], [2, 0, 3], [2, 2, 0]].map(|[batch, heads, seq]| Rope {
        style: RopeStyle::Half,
        dtype: DType::F32,
        output_dtype: DType::F32,
        dims: (8, 8),
        positions: Positions::Zero,
        batch,
        heads,
        seq,
        tokens_first: [false, false],
        in_place: false,
    });
    let converting = pairwise(&[2, 2, DIMS.len(), 3, 2], "rope converting").into_iter().map(|row| Rope {
        style: [RopeStyle::Half, RopeStyle::Interleaved][row[0]],
        dtype: [DType::F32, DType::F16][row[1]],
        output_dtype: [DType::F16, DType::F32][row[1]],
        dims: DIMS[row[2]],
        positions: POSITIONS[row[3]],
        batch: 2,
        heads: 3,
        seq: 5,
        tokens_first: [row[4] == 1, row[4] == 0],
        in_place: false,
    });
    let beside_start = [DType::F32, DType::F16].map(|dtype| Rope {
        style: RopeStyle::Half,
        dtype,
        output_dtype: dtype,
        dims: (8, 4),
        positions: Positions::ListedBesideStart,
        batch: 2,
        heads: 3,
        seq: 5,
        tokens_first: [false, false],
        in_place: false,
    });
    covering.chain(empty).chain(converting).chain(beside_start).map(Rope::case).collect()
}

impl Rope {
    fn case(self) -> Case {
        let Self {
            style,
            dtype,
            output_dtype,
            dims: (head_dim, rotary_dim),
            positions,
            batch,
            heads,
            seq,
            tokens_first: [from, to],
            in_place,
        } = self;
        let layout = |tokens_first| super::flag(tokens_first, "tokens", "heads");
        let into = if output_dtype == dtype { String::new() } else { format!("_into_{output_dtype}") };
        let (from, to, place) = (layout(from), layout(to), super::flag(in_place, "in_place", "apart"));
        let name = format!(
            "{style:?}_{dtype}{into}_b{batch}_h{heads}_s{seq}_d{head_dim}_r{rotary_dim}_{positions:?}_{from}_{to}_{place}"
        );
        Case::new("rope", name.to_lowercase(), move |rng| self.trial(rng))
    }

    fn strides(&self, operand: usize) -> HeadLayout {
        let (heads, seq, d) = (self.heads, self.seq, self.dims.0);
        let (head, token) = if self.tokens_first[operand] { (d, heads * d) } else { (seq * d, d) };
        HeadLayout { offset: 0, batch: heads * seq * d, head, token }
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let (batch, heads, seq, (d, rotary_dim)) = (self.batch, self.heads, self.seq, self.dims);
        let start = if self.positions == Positions::Start { 5 } else { 0 };
        let (pairs, max_position) = (rotary_dim / 2, seq + start + 2);
        let input = uniform(rng, self.dtype, batch * heads * seq * d, -2.0, 2.0);
        let mut table = || uniform(rng, DType::F32, max_position * pairs, -1.0, 1.0);
        let (cos, sin) = (table(), table());
        let listed: Vec<f64> = match self.positions {
            Positions::Listed | Positions::ListedBesideStart => {
                (0..batch * seq).map(|_| rng.below(max_position + 3) as f64).collect()
            }
            _ => Vec::new(),
        };
        let has_positions = matches!(self.positions, Positions::Listed | Positions::ListedBesideStart);
        let place = |operand: usize, b: usize, h: usize, t: usize| {
            let strides = self.strides(operand);
            b * strides.batch + h * strides.head + t * strides.token
        };
        let mut places = Vec::new();
        for row in 0..batch * heads * seq {
            let (b, h, t) = (row / seq / heads, row / seq % heads, row % seq);
            let position = listed.get(b * seq + t).map_or(start + t, |&p| p as usize);
            let at = position.min(max_position - 1) * pairs;
            let x = &input[place(0, b, h, t)..][..d];
            let rotated = rope(x, &cos[at..][..pairs], &sin[at..][..pairs], self.style);
            let first = place(usize::from(!self.in_place), b, h, t);
            let converted = |want| match want {
                // What is copied into another type is rounded.
                Want::Exact(x) if self.output_dtype != self.dtype => Want::number(x),
                want => want,
            };
            places.extend(rotated.into_iter().enumerate().map(|(i, want)| (first + i, converted(want))));
        }
        let mut trial = Trial::new();
        trial.input("cos", DType::F32, &cos);
        trial.input("sin", DType::F32, &sin);
        trial.input("positions", DType::U32, &listed);
        if self.in_place {
            trial.scattered("x", self.dtype, input, places);
        } else {
            let len = input.len();
            trial.input("input", self.dtype, &input);
            trial.scattered("output", self.output_dtype, vec![f64::NAN; len], places);
        }
        trial.calling(move |backend, p| {
            let ptrs = [p[3], p[p.len() - 1], p[0], p[1]];
            let mut desc = RopeDesc::new(
                self.dtype,
                ptrs[0],
                ptrs[1],
                RopeTables { cos: ptrs[2], sin: ptrs[3], max_position },
                RopeShape { batch, heads, seq, head_dim: d },
                self.style,
            );
            (desc.rotary_dim, desc.start, desc.output_dtype) = (rotary_dim, start, self.output_dtype);
            if self.positions == Positions::ListedBesideStart {
                desc.start = usize::MAX;
            }
            desc.positions = has_positions.then_some(p[2]);
            let layout = |i: usize| self.tokens_first[i].then(|| self.strides(i));
            (desc.input_layout, desc.output_layout) = (layout(0), layout(1));
            backend.rope(&desc)
        })
    }
}
