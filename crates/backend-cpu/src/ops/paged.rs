//! Keys or values of attention in blocks of a pool.

use std::ops::Range;

use backend_api::desc::{BlockTable, HeadLayout};
use backend_api::kv::{KvFormat, dequantize_q8_0};
use bytemuck::{Pod, cast_slice};

use crate::element::{Element, with_float};

/// The keys or the values of all sequences.
pub(super) struct Pool<'a> {
    /// From the first vector on.
    pub(super) bytes: &'a [u8],
    pub(super) format: KvFormat,
    /// By block, head and position.
    pub(super) layout: HeadLayout,
    pub(super) of: BlockTable,
    /// Blocks of each sequence.
    pub(super) table: &'a [u32],
}

impl Pool<'_> {
    /// The vectors, of `dim` elements each, of some keys of one head of a sequence: zeros where the table names no block
    /// of the pool.
    pub(super) fn vectors(&self, [batch, head]: [usize; 2], keys: &Range<usize>, dim: usize) -> Vec<f32> {
        let BlockTable { max_blocks, block_size, pool_blocks, .. } = self.of;
        let mut vectors = vec![0.0; keys.len() * dim];
        for (key, vector) in keys.clone().zip(vectors.chunks_exact_mut(dim)) {
            let block = self.table[batch * max_blocks + key / block_size] as usize;
            if block < pool_blocks {
                let HeadLayout { batch: stride, head: by_head, token, .. } = self.layout;
                self.load(block * stride + head * by_head + key % block_size * token, vector);
            }
        }
        vectors
    }

    /// The elements from `start` on.
    fn load(&self, start: usize, to: &mut [f32]) {
        match self.format {
            KvFormat::Float(dtype) => with_float!(dtype, T => {
                T::load(&elements::<T>(self.bytes)[start..][..to.len()], to);
            }),
            format => {
                // Vectors are whole blocks, whose bytes have been counted before.
                let bytes = |elements| format.bytes("attention", elements).unwrap_or_default();
                let _ = dequantize_q8_0(&self.bytes[bytes(start)..][..bytes(to.len())], to);
            }
        }
    }
}

/// The elements of an operand; no bytes have no alignment.
fn elements<T: Pod>(bytes: &[u8]) -> &[T] {
    if bytes.is_empty() { &[] } else { cast_slice(bytes) }
}
