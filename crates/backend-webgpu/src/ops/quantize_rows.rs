//! Rows into a cache of Q8_0.

use backend_api::desc::QuantizeRowsDesc;
use backend_api::kv::KvFormat;
use backend_api::{BackendResult, DType};

use super::scatter::SHARED_INDEX;
use super::shared::iterations;
use super::shared::long_work::{Divisible, halves_of, in_parts};
use crate::device::DeviceProfile;
use crate::kernels::{KernelSource, Variant, kernel, params};
use crate::ops::op_context::{OpContext, dim, linear_grid};
use crate::recorder::Window;

static APPEND: KernelSource = kernel!(
    "tokens/append_q8_0",
    libs: [GRID, INDEXED_ROW],
    types: ["S"],
    constants: ["INDEXED"],
    params: Params,
    reads: ["source: S", "indices: u32"],
    writes: ["cache: u32"],
);

params! {
    struct Params {
        // Rows of the cache that are bound, and the first of them.
        rows: u32,
        low: u32,
        // Blocks of a row, and words from one row to the next.
        blocks: u32,
        stride: u32,
        count: u32,
        ld: u32,
        source: u32,
        indices: u32,
        cache: u32,
    }
}

const WORKGROUP: usize = 64;

pub(super) fn variants() -> Vec<Variant> {
    [DType::F32, DType::F16].into_iter().flat_map(|dtype| [false, true].map(|i| variant(dtype, i))).collect()
}

fn variant(dtype: DType, indexed: bool) -> Variant {
    Variant::new(&APPEND, [dtype], [u32::from(indexed)])
}

/// Words of so many elements in whole blocks.
const fn words(elements: usize) -> usize {
    elements / KvFormat::BLOCK * (KvFormat::BLOCK_BYTES / size_of::<u32>())
}

/// `cache[indices[i], ..] = source[i, ..]` in blocks of Q8_0.
pub(crate) fn quantize_rows(ctx: &OpContext, op: &'static str, desc: &QuantizeRowsDesc) -> BackendResult<()> {
    let [Some(source), Some(cache), indices] = ctx.resolve(op, &desc.operands(op)?)? else { return Ok(()) };
    ctx.require_dtype(op, desc.source.dtype)?;
    let cache = ctx.output(&cache, DType::U32);
    let source = ctx.input(op, &source, desc.source.dtype, &cache)?;
    let indices = ctx.optional_input(op, indices.as_ref(), DType::U32, &cache)?;
    if desc.indices.is_some() {
        iterations::require(ctx, op, "count", desc.count, 1)?;
    }
    let mut desc = *desc;
    // A stride that leads nowhere may be any number.
    desc.source.ld = if desc.count > 1 { desc.source.ld } else { 0 };
    let named = if desc.indices.is_some() { desc.rows } else { desc.count };
    desc.stride = if named > 1 { desc.stride } else { 0 };
    in_parts(ctx, op, Part { desc, low: 0, source, indices, cache }, |part| part.launch(ctx, op))
}

/// Some of a call's rows, or those of them that go to some rows of the cache.
#[derive(Clone, Debug)]
struct Part {
    desc: QuantizeRowsDesc,
    /// The first of the cache's rows.
    low: usize,
    source: Window,
    indices: Window,
    cache: Window,
}

impl Part {
    const fn is_indexed(&self) -> bool {
        self.desc.indices.is_some()
    }

    /// Elements of the source, and words of the cache, from the first to the last one.
    const fn extents(&self) -> [usize; 2] {
        let QuantizeRowsDesc { source, rows, columns, count, stride, .. } = self.desc;
        let named = if self.is_indexed() { rows } else { count };
        let [count, named] = [count.saturating_sub(1), named.saturating_sub(1)];
        [count * source.ld + columns, named * words(stride) + words(columns)]
    }

    fn excesses(&self) -> [u64; 2] {
        let [source, cache] = self.extents();
        [self.source.excess(source), self.cache.excess(cache)]
    }

    /// Rows of the source. Without indices, they go to as many rows of the cache.
    fn rows(&self, first: usize, count: usize) -> Self {
        let mut desc = self.desc;
        desc.count = count;
        let skipped = if self.is_indexed() { 0 } else { first };
        desc.rows -= skipped;
        Self {
            source: self.source.advanced(first * desc.source.ld),
            indices: if self.is_indexed() {
                self.indices.advanced(first).truncated(count)
            } else {
                self.indices.clone()
            },
            cache: self.cache.advanced(skipped * words(desc.stride)),
            desc,
            low: self.low,
        }
    }

    /// Rows of a cache with indices.
    fn places(&self, first: usize, rows: usize) -> Self {
        let mut desc = self.desc;
        desc.rows = rows;
        let cache = self.cache.advanced(first * words(desc.stride));
        Self { desc, low: self.low + first, cache, ..self.clone() }
    }

    fn launch(&self, ctx: &OpContext, op: &'static str) -> BackendResult<()> {
        let QuantizeRowsDesc { source: matrix, rows, columns, count, stride, .. } = self.desc;
        let [elements, reached] = self.extents();
        let (source, cache) = (self.source.truncated(elements), self.cache.truncated(reached));
        let blocks = columns / KvFormat::BLOCK;
        let params = Params {
            rows: dim(op, "rows", rows)?,
            low: dim(op, "rows", self.low)?,
            blocks: dim(op, "columns", blocks)?,
            stride: dim(op, "stride", words(stride))?,
            count: dim(op, "count", count)?,
            ld: dim(op, "ld of the source", matrix.ld)?,
            source: source.offset,
            indices: self.indices.offset,
            cache: cache.offset,
        };
        let grid = linear_grid(op, count.saturating_mul(blocks).div_ceil(WORKGROUP))?;
        let variant = variant(matrix.dtype, self.is_indexed());
        ctx.launch(op, &variant, &[&source, &self.indices], &cache, &params, grid)
    }
}

impl Divisible for Part {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        let QuantizeRowsDesc { source, columns, count, .. } = self.desc;
        let compared = if self.is_indexed() { count as f64 * SHARED_INDEX } else { 0.0 };
        count as f64 * columns as f64 * (source.dtype.size() as f64 + compared) / profile.bandwidth
    }

    fn undivided_seconds(&self, profile: &DeviceProfile) -> f64 {
        if self.is_indexed() { self.desc.count as f64 / profile.iterations } else { 0.0 }
    }

    fn halves(&self) -> Option<[Self; 2]> {
        halves_of(self.desc.count, |first, count| self.rows(first, count))
    }

    fn excess(&self) -> u64 {
        self.excesses().iter().sum()
    }

    /// By rows of the cache, where those are too many to be bound.
    fn smaller_halves(&self) -> Option<[Self; 2]> {
        let [_, of_cache] = self.excesses();
        let by_places = self.is_indexed() && of_cache > 0;
        let places = || halves_of(self.desc.rows, |first, rows| self.places(first, rows));
        by_places.then(places).flatten().or_else(|| self.halves())
    }
}
