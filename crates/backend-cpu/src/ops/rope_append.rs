//! Rotary position embedding of queries and keys, and keys and values into a cache.

use backend_api::BackendResult;
use backend_api::desc::RopeAppendDesc;
use bytemuck::{cast_slice, cast_slice_mut, try_cast_slice};

use super::gather::inside;
use super::norm::normalise;
use super::rope::Angles;
use crate::access::Call;
use crate::element::{Element, with_float};
use crate::parallel::Cores;

/// Numbers in the share of one thread.
const GRAIN: usize = 1 << 13;

/// Rotated keys and values that are buffered, in numbers, before they are written to the cache; at least a row's.
const ROOM: usize = 1 << 20;

/// Rotates queries in place, and appends rotated keys and values to a cache.
pub(crate) fn rope_append(call: Call<'_>, desc: &RopeAppendDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    call.access_two(&operands, |[_, _, cos, sin, positions, indices, query_norm, key_norm], [qkv, cache]| {
        let weights = [query_norm, key_norm]
            .map(|weight| with_float!(desc.qkv.dtype, T => wide::<T>(weight.elements())));
        let layer = Layer { desc, angles: Angles::new([cos, sin, positions]), weights };
        // No cache is touched where nothing is appended.
        let indices = if cache.is_empty() { &[] } else { indices.elements() };
        let heads = desc.heads.saturating_add(desc.kv_heads);
        let numbers = desc.rows.saturating_mul(heads).saturating_mul(desc.head_dim);
        Cores::run(numbers.saturating_mul(4), |cores| {
            with_float!(desc.qkv.dtype, T => {
                with_float!(desc.cache.dtype, C => {
                    layer.append::<T, C>(cores, cast_slice(qkv), indices, cast_slice_mut(cache));
                });
                layer.rotate_queries::<T>(cores, cast_slice_mut(qkv));
            });
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
    fn append<T: Element, C: Element>(&self, cores: Cores, qkv: &[T], indices: &[u32], cache: &mut [C]) {
        let RopeAppendDesc { heads, kv_heads, head_dim, cache_rows, .. } = *self.desc;
        let width = kv_heads * head_dim;
        if width == 0 {
            return;
        }
        let most = (ROOM / (2 * width)).max(1);
        let mut rows = vec![C::zeroed(); indices.len().min(most) * 2 * width];
        for (block, indices) in indices.chunks(most).enumerate() {
            let rows = &mut rows[..indices.len() * 2 * width];
            cores.chunks(rows, 2 * width, GRAIN, &|first, rows| {
                let mut scratch = [vec![0.0; head_dim], vec![0.0; head_dim]];
                for (i, row) in rows.chunks_exact_mut(2 * width).enumerate() {
                    let i = block * most + first / (2 * width) + i;
                    let from = &qkv[self.row(i) + heads * head_dim..][..2 * width];
                    let (keys, values) = row.split_at_mut(width);
                    copy(from, keys, values);
                    for (from, to) in from.chunks_exact(head_dim).zip(keys.chunks_exact_mut(head_dim)) {
                        let changed = self.change(i, Of::Keys, from, &mut scratch);
                        C::store(changed, &mut to[..changed.len()]);
                    }
                }
            });
            for (row, &index) in rows.chunks_exact(2 * width).zip(indices) {
                let Some(target) = inside(index, cache_rows) else { continue };
                let target = if target == 0 { 0 } else { target * self.desc.cache.ld };
                cache[target..][..2 * width].copy_from_slice(row);
            }
        }
    }

    fn rotate_queries<T: Element>(&self, cores: Cores, qkv: &mut [T]) {
        let RopeAppendDesc { qkv: matrix, rows, heads, head_dim, rotary_dim, norm, .. } = *self.desc;
        if qkv.is_empty() || head_dim == 0 || rotary_dim == 0 && norm.is_none() {
            return;
        }
        let row_len = if rows == 1 { qkv.len() } else { matrix.ld };
        cores.chunks(qkv, row_len, GRAIN, &|first, qkv| {
            let mut scratch = [vec![0.0; head_dim], vec![0.0; head_dim]];
            for (i, row) in qkv.chunks_mut(row_len).enumerate() {
                for query in row[..heads * head_dim].chunks_exact_mut(head_dim) {
                    let changed = self.change(first / row_len + i, Of::Queries, query, &mut scratch);
                    T::store(changed, &mut query[..changed.len()]);
                }
            }
        });
    }

    /// The elements of a vector of row `i` that norms and rotation change, which are its first ones.
    fn change<'s, T: Element>(
        &self,
        i: usize,
        of: Of,
        vector: &[T],
        [x, y]: &'s mut [Vec<f32>; 2],
    ) -> &'s [f32] {
        let RopeAppendDesc { rotary_dim, max_position, style, norm, .. } = *self.desc;
        T::load(vector, x);
        if let Some(norm) = norm {
            normalise::<f32>(x, &self.weights[of as usize], norm.eps);
            y.copy_from_slice(x);
        }
        if rotary_dim >= 2 {
            let position = (self.angles.positions[i] as usize).min(max_position - 1);
            self.angles.rotate(style, position, x, &mut y[..rotary_dim]);
        }
        let changed = if norm.is_some() { y.len() } else { rotary_dim };
        &y[..changed]
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
