//! Rotary position embedding of queries and keys, and keys and values into a cache.

use backend_api::BackendResult;
use backend_api::desc::RopeAppendDesc;
use bytemuck::{cast_slice, cast_slice_mut, try_cast_slice};

use super::gather::inside;
use super::rope::Angles;
use crate::access::Call;
use crate::element::{Element, with_float};

/// Rotates queries in place, and appends rotated keys and values to a cache.
pub(crate) fn rope_append(call: Call<'_>, desc: &RopeAppendDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    call.access_two(&operands, |[_, _, cos, sin, positions, indices], [qkv, cache]| {
        let layer = Layer { desc, angles: Angles::new([cos, sin, positions]) };
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
}

impl Layer<'_> {
    /// Elements before row `i` of `qkv`. A leading dimension that leads nowhere may be any number.
    const fn row(&self, i: usize) -> usize {
        if i == 0 { 0 } else { i * self.desc.qkv.ld }
    }

    /// Of equal indices, the last one stays.
    fn append<T: Element, C: Element>(&self, qkv: &[T], indices: &[u32], cache: &mut [C]) {
        let RopeAppendDesc { heads, kv_heads, head_dim, rotary_dim, cache_rows, .. } = *self.desc;
        let mut rotated = vec![0.0; head_dim];
        for (i, &index) in indices.iter().enumerate() {
            let Some(target) = inside(index, cache_rows) else { continue };
            let target = if target == 0 { 0 } else { target * self.desc.cache.ld };
            let (keys, values) = cache[target..][..2 * kv_heads * head_dim].split_at_mut(kv_heads * head_dim);
            let row = &qkv[self.row(i) + heads * head_dim..][..2 * kv_heads * head_dim];
            copy(row, keys, values);
            for (from, to) in row.chunks_exact(head_dim).zip(keys.chunks_exact_mut(head_dim)) {
                self.rotate(i, from, &mut rotated);
                C::store(&rotated[..rotary_dim], &mut to[..rotary_dim]);
            }
        }
    }

    fn rotate_queries<T: Element>(&self, qkv: &mut [T]) {
        let RopeAppendDesc { rows, heads, head_dim, rotary_dim, .. } = *self.desc;
        let mut rotated = vec![0.0; head_dim];
        for i in (0..rows).take_while(|_| rotary_dim > 0) {
            for query in qkv[self.row(i)..][..heads * head_dim].chunks_exact_mut(head_dim) {
                self.rotate(i, query, &mut rotated);
                T::store(&rotated[..rotary_dim], &mut query[..rotary_dim]);
            }
        }
    }

    /// The first elements of a vector of row `i`.
    fn rotate<T: Element>(&self, i: usize, x: &[T], y: &mut [f32]) {
        let RopeAppendDesc { rotary_dim, max_position, style, .. } = *self.desc;
        if rotary_dim < 2 {
            return;
        }
        let position = (self.angles.positions[i] as usize).min(max_position - 1);
        let mut wide = vec![0.0; x.len()];
        T::load(x, &mut wide);
        self.angles.rotate(style, position, &wide, &mut y[..rotary_dim]);
    }
}

/// Keys and values of a row, as bits if their type stays.
fn copy<T: Element, C: Element>(row: &[T], keys: &mut [C], values: &mut [C]) {
    let (from_keys, from_values) = row.split_at(keys.len());
    for (from, to) in [(from_keys, keys), (from_values, values)] {
        match try_cast_slice(from) {
            Ok(alike) if size_of::<T>() == size_of::<C>() => to.copy_from_slice(alike),
            _ => {
                let mut wide = vec![0.0; from.len()];
                T::load(from, &mut wide);
                C::store(&wide, to);
            }
        }
    }
}
