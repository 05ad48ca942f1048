//! `rope_append`: styles, partial rotation, types, rows that are far apart, and indices inside and outside the cache.

use backend_api::DType;
use backend_api::desc::{Matrix, QkNorm, RopeAppendDesc, RopeAppendShape, RopeStyle, RopeTables};

use crate::case::Case;
use crate::data::uniform;
use crate::grid::pairwise;
use crate::oracle::rope::{Appended, rope_append};
use crate::rng::Rng;
use crate::trial::Trial;

/// `head_dim` and `rotary_dim`.
const DIMS: [(usize, usize); 7] = [(2, 2), (5, 4), (7, 0), (8, 6), (32, 32), (80, 32), (128, 128)];

/// Heads of queries, and of keys and values.
const HEADS: [(usize, usize); 6] = [(1, 1), (4, 2), (3, 3), (5, 1), (0, 2), (2, 0)];

/// Of the mean square.
const EPS: f64 = 1e-3;

#[derive(Clone, Copy, Debug)]
struct RopeAppend {
    style: RopeStyle,
    dtype: DType,
    cache_dtype: DType,
    dims: (usize, usize),
    heads: (usize, usize),
    rows: usize,
    /// Elements between rows.
    apart: [usize; 2],
    /// Whether the cache lies in the memory of `qkv`.
    is_shared: bool,
    /// Whether queries and keys are normalised.
    normed: bool,
}

pub(super) fn cases() -> Vec<Case> {
    let types = [DType::F32, DType::F16];
    let counts = [2, 2, 2, DIMS.len(), HEADS.len(), 5, 3, 3, 2];
    let seeds = ["rope_append 1", "rope_append 2"];
    let covering = seeds.into_iter().flat_map(|seed| pairwise(&counts, seed)).map(|row| RopeAppend {
        style: [RopeStyle::Half, RopeStyle::Interleaved][row[0]],
        dtype: types[row[1]],
        cache_dtype: types[row[2]],
        dims: DIMS[row[3]],
        heads: HEADS[row[4]],
        rows: [0, 1, 2, 7, 33][row[5]],
        apart: [[0, 3, 16][row[6]], [0, 5, 32][row[7]]],
        is_shared: false,
        normed: row[8] == 1,
    });
    let shared = types.into_iter().flat_map(|dtype| {
        let dims = [(8, 6), (7, 0), (64, 64)].into_iter();
        dims.flat_map(|dims| [false, true].map(|normed| (dims, normed))).map(move |(dims, normed)| {
            RopeAppend {
                style: RopeStyle::Half,
                dtype,
                cache_dtype: dtype,
                dims,
                heads: (4, 2),
                rows: 5,
                apart: [2, 4],
                is_shared: true,
                normed,
            }
        })
    });
    covering.chain(shared).map(RopeAppend::case).collect()
}

impl RopeAppend {
    fn case(self) -> Case {
        let Self { style, dtype, cache_dtype, rows, .. } = self;
        let ((d, r), (heads, kv_heads), [a, b]) = (self.dims, self.heads, self.apart);
        let memory = super::flag(self.is_shared, "one_memory", "apart");
        let norm = super::flag(self.normed, "_normed", "");
        let name = format!(
            "{style:?}_{dtype}_into_{cache_dtype}_d{d}_r{r}_h{heads}_kv{kv_heads}_rows{rows}_{a}_{b}_{memory}{norm}"
        );
        Case::new("rope_append", name.to_lowercase(), move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let Self { style, dtype, cache_dtype, rows, normed, .. } = self;
        let ((d, rotary_dim), (heads, kv_heads)) = (self.dims, self.heads);
        let (width, cached) = ((heads + 2 * kv_heads) * d, 2 * kv_heads * d);
        let [ld, cache_ld] = [width + self.apart[0], cached.max(1) + self.apart[1]];
        let cache_rows = rows + 3;
        let (pairs, max_position) = (rotary_dim / 2, rows + 2);
        let mut table = || uniform(rng, DType::F32, max_position * pairs, -1.0, 1.0);
        let (cos, sin) = (table(), table());
        // Some past the tables.
        let positions: Vec<f64> = (0..rows).map(|_| rng.below(max_position + 3) as f64).collect();
        // Some outside the cache, some of them negative, and some again.
        let indices: Vec<f64> = (0..rows)
            .map(|_| {
                if rng.one_in(6) {
                    f64::from(u32::MAX - rng.below(2) as u32)
                } else {
                    rng.below(cache_rows + 2) as f64
                }
            })
            .collect();

        let of_qkv = if rows == 0 { 0 } else { (rows - 1) * ld + width };
        let of_cache = if cached == 0 { 0 } else { (cache_rows - 1) * cache_ld + cached };
        let qkv: Vec<f64> = uniform(rng, dtype, of_qkv, -2.0, 2.0);
        let offset = if self.is_shared { of_qkv } else { 0 };
        let desc_of = move |p: &[u64]| {
            let qkv = Matrix::new(p[if normed { 6 } else { 4 }], dtype, ld);
            let cache = Matrix::new(p[p.len() - 1], cache_dtype, cache_ld).with_offset(offset);
            let tables = RopeTables { cos: p[0], sin: p[1], max_position };
            let shape = RopeAppendShape { rows, heads, kv_heads, head_dim: d, cache_rows };
            let desc = RopeAppendDesc::new(qkv, cache, tables, shape, p[2], p[3]);
            let desc = desc.with_style(style).with_rotary_dim(rotary_dim);
            if normed { desc.with_norm(QkNorm::new(p[4], p[5], EPS)) } else { desc }
        };
        let norms = [(); 2].map(|()| uniform(rng, dtype, d, 0.5, 1.5));
        let operands = Appended { qkv, cos, sin, positions, indices, norms };
        let [of_queries, of_cache_rows] = rope_append(&desc_of(&[0; 8]), &operands);
        let Appended { qkv, cos, sin, positions, indices, norms } = operands;

        let mut trial = Trial::new();
        trial.input("cos", DType::F32, &cos);
        trial.input("sin", DType::F32, &sin);
        trial.input("positions", DType::U32, if pairs > 0 { &positions } else { &[] });
        trial.input("indices", DType::U32, if of_cache > 0 { &indices } else { &[] });
        if normed {
            norms.iter().for_each(|norm| trial.input("norm", dtype, norm));
        }
        let before = uniform(rng, cache_dtype, of_cache, -2.0, 2.0);
        if self.is_shared {
            let wants = of_queries.into_iter().chain(of_cache_rows).collect();
            trial.scattered("qkv and cache", dtype, [qkv, before].concat(), wants);
        } else {
            trial.scattered("qkv", dtype, qkv, of_queries);
            trial.scattered("cache", cache_dtype, before, of_cache_rows);
        }
        trial.calling(move |backend, p| backend.rope_append(&desc_of(p)))
    }
}
