//! Rotary position embedding of queries and keys, and keys and values into a cache.

use backend_api::BackendResult;
use backend_api::desc::RopeAppendDesc;
use bytemuck::{cast_slice, cast_slice_mut, try_cast_slice};

use super::gather::inside;
use super::norm::normalise;
use super::rope::Angles;
use crate::access::Call;
use crate::element::{Element, with_float};

/// Rotates queries in place, and appends rotated keys and values to a cache.
pub(crate) fn rope_append(call: Call<'_>, desc: &RopeAppendDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    call.access_two(&operands, |[_, _, cos, sin, positions, indices, query_norm, key_norm], [qkv, cache]| {
        let weights = [query_norm, key_norm]
            .map(|weight| with_float!(desc.qkv.dtype, T => wide::<T>(weight.elements())));
        let layer = Layer { desc, angles: Angles::new([cos, sin, positions]), weights };
        // No cache is touched where nothing is appended.
        let indices = if cache.is_empty() { &[] } else { indices.elements() };
        with_float!(desc.qkv.dtype, T => {
            with_float!(desc.cache.dtype, C => {
                layer.append::<T, C>(cast_slice(qkv), indices, cast_slice_mut(cache));
            });
            layer.rotate_queries::<T>(cast_slice_mut(qkv));
        });
    })
}

struct Layer<'a> {
    desc: &'a RopeAppendDesc,
    angles: Angles<'a>,
    /// Of the norms of queries and of keys; of those that there are.
    weights: [Vec<f32>; 2],
}

/// Which norm vectors have.
#[derive(Clone, Copy)]
enum Of {
    Queries,
    Keys,
}

impl Layer<'_> {
    /// Elements before row `i` of `qkv`. A leading dimension that leads nowhere may be any number.
    const fn row(&self, i: usize) -> usize {
        if i == 0 { 0 } else { i * self.desc.qkv.ld }
    }

    /// Of equal indices, the last one stays.
    fn append<T: Element, C: Element>(&self, qkv: &[T], indices: &[u32], cache: &mut [C]) {
        let RopeAppendDesc { heads, kv_heads, head_dim, cache_rows, .. } = *self.desc;
        let mut rotated = vec![0.0; head_dim];
        for (i, &index) in indices.iter().enumerate() {
            let Some(target) = inside(index, cache_rows) else { continue };
            let target = if target == 0 { 0 } else { target * self.desc.cache.ld };
            let (keys, values) = cache[target..][..2 * kv_heads * head_dim].split_at_mut(kv_heads * head_dim);
            let row = &qkv[self.row(i) + heads * head_dim..][..2 * kv_heads * head_dim];
            copy(row, keys, values);
            for (from, to) in row.chunks_exact(head_dim).zip(keys.chunks_exact_mut(head_dim)) {
                let changed = self.change(i, Of::Keys, from, &mut rotated);
                C::store(&rotated[..changed], &mut to[..changed]);
            }
        }
    }

    fn rotate_queries<T: Element>(&self, qkv: &mut [T]) {
        let RopeAppendDesc { rows, heads, head_dim, rotary_dim, norm, .. } = *self.desc;
        let mut rotated = vec![0.0; head_dim];
        for i in (0..rows).take_while(|_| head_dim > 0 && (rotary_dim > 0 || norm.is_some())) {
            for query in qkv[self.row(i)..][..heads * head_dim].chunks_exact_mut(head_dim) {
                let changed = self.change(i, Of::Queries, query, &mut rotated);
                T::store(&rotated[..changed], &mut query[..changed]);
            }
        }
    }

    /// A vector of row `i`, normalised and rotated; how many of its elements are other ones.
    fn change<T: Element>(&self, i: usize, of: Of, x: &[T], y: &mut [f32]) -> usize {
        let RopeAppendDesc { rotary_dim, max_position, style, norm, .. } = *self.desc;
        let mut x = wide(x);
        if let Some(norm) = norm {
            normalise::<f32>(&mut x, &self.weights[of as usize], norm.eps);
            y.copy_from_slice(&x);
        }
        if rotary_dim >= 2 {
            let position = (self.angles.positions[i] as usize).min(max_position - 1);
            self.angles.rotate(style, position, &x, &mut y[..rotary_dim]);
        }
        if norm.is_some() { x.len() } else { rotary_dim }
    }
}

fn wide<T: Element>(x: &[T]) -> Vec<f32> {
    let mut wide = vec![0.0; x.len()];
    T::load(x, &mut wide);
    wide
}

/// Keys and values of a row, as bits if their type stays.
fn copy<T: Element, C: Element>(row: &[T], keys: &mut [C], values: &mut [C]) {
    let (from_keys, from_values) = row.split_at(keys.len());
    for (from, to) in [(from_keys, keys), (from_values, values)] {
        match try_cast_slice(from) {
            Ok(alike) if size_of::<T>() == size_of::<C>() => to.copy_from_slice(alike),
            _ => C::store(&wide(from), to),
        }
    }
}
