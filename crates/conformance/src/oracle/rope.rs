//! Rotary position embedding, of one vector and of rows whose keys go to a cache.

use std::collections::BTreeMap;

use backend_api::DType;
use backend_api::desc::{RopeAppendDesc, RopeDesc, RopeStyle};

use super::expected::{Bytes, Expected, start};
use super::quant::normed;
use crate::float::{MIN_NORMAL_F32, gamma};
use crate::want::Want;

/// `x` rotated by the angles with the given cosines and sines, one for each pair; the numbers behind the
/// pairs are copied.
pub(crate) fn rope(x: &[f64], cos: &[f64], sin: &[f64], style: RopeStyle) -> Vec<Want> {
    let copied = x.iter().map(|&x| Want::Exact(x)).collect();
    let exact: Vec<_> = x.iter().map(|&x| (x, 0.0)).collect();
    rotated(copied, &exact, [cos, sin], style)
}

/// `wants` with the pairs of numbers with errors rotated. Two products and a sum: γ(2) of their magnitudes.
fn rotated(mut wants: Vec<Want>, x: &[(f64, f64)], [cos, sin]: [&[f64]; 2], style: RopeStyle) -> Vec<Want> {
    let pairs = cos.len();
    for (pair, (&c, &s)) in cos.iter().zip(sin).enumerate() {
        let (i, j) = match style {
            RopeStyle::Half => (pair, pair + pairs),
            RopeStyle::Interleaved => (2 * pair, 2 * pair + 1),
        };
        let ((first, of_first), (second, of_second)) = (x[i], x[j]);
        let near = |c: f64, s: f64| {
            let (a, b) = (first * c, second * s);
            let error = of_first * c.abs() + of_second * s.abs();
            Want::near(a + b, error + gamma(2) * (a.abs() + b.abs() + error) + 2.0 * MIN_NORMAL_F32)
        };
        (wants[i], wants[j]) = (near(c, -s), near(s, c));
    }
    wants
}

/// `want` of a number that is copied, which another type rounds.
fn converted(want: Want, [from, to]: [DType; 2]) -> Want {
    match want {
        Want::Exact(x) if from != to => Want::number(x),
        want => want,
    }
}

pub(super) fn expect_rope(desc: &RopeDesc, memory: &Bytes) -> Expected {
    let &RopeDesc { batch, heads, seq, head_dim, dtype, output_dtype, .. } = desc;
    let pairs = desc.rotary_dim / 2;
    let [from, to] = desc.layouts();
    let input = memory.numbers(desc.input, dtype);
    let [cos, sin] = [desc.cos, desc.sin].map(|ptr| memory.numbers(ptr, DType::F32));
    let positions = memory.optional(desc.positions, DType::U32);
    let mut wants = Vec::new();
    for row in 0..batch * heads * seq {
        let (b, h, t) = (row / seq / heads, row / seq % heads, row % seq);
        let position =
            positions.get(b * seq + t).map_or_else(|| desc.start + t, |&position| position as usize);
        let at = position.min(desc.max_position.saturating_sub(1)) * pairs;
        let x = &input[start(from, [b, h, t])..][..head_dim];
        let rotated = rope(x, &cos[at..][..pairs], &sin[at..][..pairs], desc.style);
        let first = start(to, [b, h, t]);
        let stored = rotated.into_iter().map(|want| converted(want, [dtype, output_dtype]));
        wants.extend(stored.enumerate().map(|(i, want)| (first + i, want)));
    }
    Expected::computed(desc.output, output_dtype, wants)
}

/// What the operands of a `rope_append` hold, each from its handle on; nothing where it isn't read.
pub(crate) struct Appended {
    pub(crate) qkv: Vec<f64>,
    pub(crate) cos: Vec<f64>,
    pub(crate) sin: Vec<f64>,
    pub(crate) positions: Vec<f64>,
    pub(crate) indices: Vec<f64>,
    /// The weights of the norms of queries and keys.
    pub(crate) norms: [Vec<f64>; 2],
}

/// [`normed`], with infinite errors where squares may be infinite in f32.
fn normalised(x: &[f64], weight: &[f64], eps: f64, dtype: DType) -> Vec<(f64, f64)> {
    if x.iter().map(|x| x * x).sum::<f64>() > f64::from(f32::MAX) / 2.0 {
        return vec![(0.0, f64::INFINITY); x.len()];
    }
    normed(dtype, x, weight, eps)
}

/// The queries in place, and the rows of the cache that an index names, each element by its place after the handle.
pub(crate) fn rope_append(desc: &RopeAppendDesc, operands: &Appended) -> [Vec<(usize, Want)>; 2] {
    let &RopeAppendDesc { heads, kv_heads, head_dim, rotary_dim, .. } = desc;
    let ([width, cached], pairs) = (desc.widths(), rotary_dim / 2);
    let start = |i: usize| desc.qkv.offset + i * desc.qkv.ld;
    let changed_head = |i: usize, x: &[f64], weight: &[f64]| {
        let angles = |table: &'_ [f64]| match pairs {
            0 => Vec::new(),
            _ => {
                let at = (operands.positions[i] as usize).min(desc.max_position - 1) * pairs;
                table[at..][..pairs].to_vec()
            }
        };
        let [cos, sin] = [&operands.cos, &operands.sin].map(|table| angles(table));
        let Some(norm) = desc.norm else { return rope(x, &cos, &sin, desc.style) };
        let x = normalised(x, weight, norm.eps, desc.qkv.dtype);
        if x.iter().any(|(_, error)| !error.is_finite()) {
            return vec![Want::Anything; x.len()];
        }
        let unturned = x.iter().map(|&(x, error)| Want::near(x, error)).collect();
        rotated(unturned, &x, [&cos, &sin], desc.style)
    };
    let changed = if desc.norm.is_some() { head_dim } else { rotary_dim };
    let [of_queries_norm, of_keys_norm] = &operands.norms;
    let (mut of_queries, mut of_rows) = (Vec::new(), BTreeMap::new());
    for i in (0..desc.rows).filter(|_| width > 0) {
        let row = &operands.qkv[start(i)..][..width];
        for head in 0..heads {
            let vector = &row[head * head_dim..][..head_dim];
            let wants = changed_head(i, vector, of_queries_norm).into_iter().take(changed);
            of_queries.extend(wants.enumerate().map(|(at, want)| (start(i) + head * head_dim + at, want)));
        }
        let target = operands.indices.get(i).map(|&index| index as usize);
        let Some(target) = target.filter(|&target| cached > 0 && target < desc.cache_rows) else { continue };
        let (keys, values) = row[heads * head_dim..].split_at(kv_heads * head_dim);
        let keys = keys.chunks(head_dim).flat_map(|key| changed_head(i, key, of_keys_norm));
        let wants = keys.chain(values.iter().map(|&value| Want::Exact(value)));
        let types = [desc.qkv.dtype, desc.cache.dtype];
        // Of equal indices, the last one stays.
        of_rows.insert(target, wants.map(|want| converted(want, types)).collect::<Vec<_>>());
    }
    let of_cache = of_rows.into_iter().flat_map(|(target, wants)| {
        let first = desc.cache.offset + target * desc.cache.ld;
        wants.into_iter().enumerate().map(move |(at, want)| (first + at, want))
    });
    [of_queries, of_cache.collect()]
}

pub(super) fn expect_rope_append(desc: &RopeAppendDesc, memory: &Bytes) -> Vec<Expected> {
    let of_pairs = |ptr: u64| (desc.rotary_dim > 0).then_some(ptr);
    let [cos, sin] = [desc.cos, desc.sin].map(|ptr| memory.optional(of_pairs(ptr), DType::F32));
    let [positions, indices] =
        [of_pairs(desc.positions), Some(desc.indices)].map(|ptr| memory.optional(ptr, DType::U32));
    let qkv = memory.numbers(desc.qkv.ptr, desc.qkv.dtype);
    let norms = desc.norm.map(|norm| [norm.query, norm.key]);
    let norms = [0, 1].map(|of| memory.optional(norms.map(|norms| norms[of]), desc.qkv.dtype));
    let operands = Appended { qkv, cos, sin, positions, indices, norms };
    let [of_queries, of_cache] = rope_append(desc, &operands);
    vec![
        Expected::computed(desc.qkv.ptr, desc.qkv.dtype, of_queries),
        Expected::computed(desc.cache.ptr, desc.cache.dtype, of_cache),
    ]
}
