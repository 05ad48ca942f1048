//! Rotary position embedding of queries and keys, which may be normalised before, and keys and values into a cache, in one launch.

use backend_api::desc::{HeadLayout, RopeAppendDesc, RopeDesc, RopeShape, RopeStyle, RopeTables};
use backend_api::support::checked_product;
use backend_api::{BackendResult, DType};

use super::quant::{AppendWindows, QkvProduct};
use super::rope::rope;
use super::scatter::SHARED_INDEX;
use super::shared::iterations;
use super::shared::long_work::{Divisible, halves_of, in_parts};
use crate::device::DeviceProfile;
use crate::kernels::{KernelSource, Variant, constants, kernel, params};
use crate::memory::DeviceSlice;
use crate::ops::op_context::{OpContext, dim, invocation_grid, linear_grid};
use crate::recorder::Window;

constants! { struct Constants { interleaved: bool } }

static APPEND: KernelSource = KernelSource {
    mixes_outputs: true,
    ..kernel!(
        "tokens/rope_append", libs: [GRID, INDEXED_ROW, ROTARY_PAIRS],
        types: ["T", "C"], constants: Constants, params: Params,
        reads: ["cosines: f32", "sines: f32", "positions: u32", "indices: u32"], writes: ["qkv: T", "cache: C"],
    )
};

static APPEND_NORMED: KernelSource = KernelSource {
    mixes_outputs: true,
    ..kernel!(
        "tokens/rope_append_normed", libs: [GRID, INDEXED_ROW, ROTARY_PAIRS],
        types: ["T", "C"], constants: Constants, params: NormedParams,
        reads: ["cosines: f32", "sines: f32", "positions: u32", "indices: u32", "query_norm: T", "key_norm: T"],
        writes: ["qkv: T", "cache: C"],
    )
};

params! {
    /// Where queries, keys and values come from, and where they go.
    struct RowParams {
        // New rows.
        count: u32,
        heads: u32,
        kv_heads: u32,
        head_dim: u32,
        pairs: u32,
        max_position: u32,
        // Rows of the cache that are bound, and the first of them.
        rows: u32,
        low: u32,
        qkv: u32,
        qkv_ld: u32,
        cache: u32,
        cache_ld: u32,
        cos: u32,
        sin: u32,
        positions: u32,
        indices: u32,
    }
}

params! {
    struct Params {
        // Invocations of a row, of its queries, and of its keys: pairs and copied elements.
        row_work: u32,
        query_work: u32,
        key_work: u32,
        total: u32,
        of_rows: RowParams,
    }
}

params! {
    struct NormedParams {
        // Workgroups, and those of a row's queries.
        total: u32,
        row_queries: u32,
        of_rows: RowParams,
        query_norm: u32,
        key_norm: u32,
        eps: f32,
    }
}

/// Invocations of a workgroup of `tokens/rope_append_normed`.
const NORMED_WORKGROUP: usize = 64;

pub(super) fn variants() -> Vec<Variant> {
    let types = [DType::F32, DType::F16];
    let types = types.into_iter().flat_map(|from| types.map(|to| [from, to]));
    types
        .flat_map(|types| [RopeStyle::Half, RopeStyle::Interleaved].map(|style| (types, style)))
        .flat_map(|(types, style)| [&APPEND, &APPEND_NORMED].map(|source| variant(source, types, style)))
        .collect()
}

/// Of the types of `qkv` and the cache.
fn variant(source: &'static KernelSource, types: [DType; 2], style: RopeStyle) -> Variant {
    Variant::new(source, types, Constants { interleaved: style == RopeStyle::Interleaved })
}

/// Rotates queries in place, and appends rotated keys and values to a cache.
pub(crate) fn rope_append(ctx: &OpContext, op: &'static str, desc: &RopeAppendDesc) -> BackendResult<()> {
    let [qkv_slice, cache_slice, cos, sin, positions, indices, query_norm, key_norm] =
        ctx.resolve(op, &desc.operands(op)?)?;
    let Some(qkv_slice) = qkv_slice else { return Ok(()) };
    ctx.require_dtype(op, desc.qkv.dtype)?;
    ctx.require_dtype(op, desc.cache.dtype)?;
    let slices = [&cos, &sin, &positions, &query_norm].map(Option::as_ref);
    let Some(cache_slice) = cache_slice else { return change_queries(ctx, op, desc, &qkv_slice, slices) };
    iterations::require(ctx, op, "rows", desc.rows, 1)?;
    let tables = [&cos, &sin, &positions, &indices].map(Option::as_ref);
    let weights = [&query_norm, &key_norm].map(Option::as_ref);
    if append_with_product(ctx, op, desc, [&qkv_slice, &cache_slice], tables, weights)? {
        return Ok(());
    }
    let qkv = ctx.output(&qkv_slice, desc.qkv.dtype);
    let cache = ctx.output(&cache_slice, desc.cache.dtype);
    let apart = !qkv.shares_buffer(&cache);
    let input = |slice: Option<&DeviceSlice>, dtype| {
        let window = ctx.optional_input(op, slice, dtype, &cache)?;
        if window.shares_buffer(&qkv) { ctx.optional_input(op, slice, dtype, &qkv) } else { Ok(window) }
    };
    let angles = [input(cos.as_ref(), DType::F32)?, input(sin.as_ref(), DType::F32)?];
    let (positions, indices) = (input(positions.as_ref(), DType::U32)?, input(indices.as_ref(), DType::U32)?);
    let norms = [input(query_norm.as_ref(), desc.qkv.dtype)?, input(key_norm.as_ref(), desc.qkv.dtype)?];
    // Keys and values of the cache's buffer are read from a copy, and queries there are rotated by themselves.
    let qkv = if apart { qkv } else { ctx.input(op, &qkv_slice, desc.qkv.dtype, &cache)? };
    let part =
        Part { desc: *desc, low: 0, rotates_queries: apart, qkv, cache, angles, positions, indices, norms };
    part.launch_all(ctx, op)?;
    if apart { Ok(()) } else { change_queries(ctx, op, desc, &qkv_slice, slices) }
}

/// Rotates and appends in the launch of a graph's product before, if that makes `qkv`; whether it does.
fn append_with_product(
    ctx: &OpContext,
    op: &'static str,
    desc: &RopeAppendDesc,
    [qkv, cache]: [&DeviceSlice; 2],
    [cos, sin, positions, indices]: [Option<&DeviceSlice>; 4],
    norms: [Option<&DeviceSlice>; 2],
) -> BackendResult<bool> {
    let Some(made) = ctx.made_before() else { return Ok(false) };
    let Some(product) = made.downcast_ref::<QkvProduct>() else { return Ok(false) };
    let read = |slice: Option<&DeviceSlice>, dtype| {
        // Parameters have a byte for where each begins.
        slice.map_or_else(|| ctx.null(), |slice| ctx.output(slice, dtype).near())
    };
    let windows = AppendWindows {
        qkv: ctx.output(qkv, desc.qkv.dtype),
        cache: ctx.output(cache, desc.cache.dtype),
        reads: [
            read(cos, DType::F32),
            read(sin, DType::F32),
            read(positions, DType::U32),
            read(indices, DType::U32),
        ],
        norms: desc.norm.map(|_| norms.map(|norm| read(norm, desc.qkv.dtype))),
    };
    product.append(ctx, op, &made, desc, &windows)
}

/// Rotates queries in place, normalised if they have a norm: by cosines, sines, positions, and the norm's weight.
fn change_queries(
    ctx: &OpContext,
    op: &'static str,
    desc: &RopeAppendDesc,
    qkv: &DeviceSlice,
    [cos, sin, positions, norm]: [Option<&DeviceSlice>; 4],
) -> BackendResult<()> {
    if desc.norm.is_none() {
        return rotate_queries(ctx, op, desc);
    }
    let dtype = desc.qkv.dtype;
    let qkv = ctx.output(qkv, dtype);
    let input = |slice, dtype| ctx.optional_input(op, slice, dtype, &qkv);
    let mut queries = *desc;
    (queries.kv_heads, queries.cache_rows) = (0, 0);
    let part = Part {
        desc: queries,
        low: 0,
        rotates_queries: true,
        angles: [input(cos, DType::F32)?, input(sin, DType::F32)?],
        positions: input(positions, DType::U32)?,
        norms: [input(norm, dtype)?, ctx.null()],
        qkv,
        cache: ctx.sink(),
        indices: ctx.null(),
    };
    part.launch_all(ctx, op)
}

/// Rotates queries in place.
fn rotate_queries(ctx: &OpContext, op: &'static str, desc: &RopeAppendDesc) -> BackendResult<()> {
    let &RopeAppendDesc { qkv, rows, heads, head_dim, max_position, cos, sin, .. } = desc;
    if desc.rotary_dim == 0 {
        return Ok(());
    }
    let shape = RopeShape { batch: 1, heads, seq: rows, head_dim };
    let layout = HeadLayout { offset: qkv.offset, batch: 0, head: head_dim, token: qkv.ld };
    let tables = RopeTables { cos, sin, max_position };
    let rotation = RopeDesc::new(qkv.dtype, qkv.ptr, qkv.ptr, tables, shape, desc.style)
        .with_rotary_dim(desc.rotary_dim)
        .with_positions(desc.positions)
        .with_input_layout(layout)
        .with_output_layout(layout);
    rope(ctx, op, &rotation)
}

/// Some rows, or those of them that go to some rows of the cache, with the windows of their first elements.
#[derive(Clone, Debug)]
struct Part {
    desc: RopeAppendDesc,
    /// The first of the cache's rows.
    low: usize,
    rotates_queries: bool,
    qkv: Window,
    cache: Window,
    /// Cosines and sines.
    angles: [Window; 2],
    positions: Window,
    indices: Window,
    /// The weights of the norms of queries and keys.
    norms: [Window; 2],
}

impl Part {
    /// Elements of `qkv` and the cache, from the first to the last one.
    fn extents(&self) -> [usize; 2] {
        let RopeAppendDesc { qkv, cache, rows, cache_rows, .. } = self.desc;
        let [width, cached] = self.desc.widths();
        let reach =
            |count: usize, ld: usize, width| count.saturating_sub(1).saturating_mul(ld).saturating_add(width);
        [reach(rows, qkv.ld, width), reach(cache_rows, cache.ld, cached)]
    }

    fn excesses(&self) -> [u64; 2] {
        let [qkv, cache] = self.extents();
        [self.qkv.excess(qkv), self.cache.excess(cache)]
    }

    fn rows(&self, first: usize, count: usize) -> Self {
        let of_rows = |window: &Window| window.advanced(first).truncated(count);
        let mut desc = self.desc;
        desc.rows = count;
        Self {
            desc,
            qkv: self.qkv.advanced(first * self.desc.qkv.ld),
            // Without pairs there are no positions.
            positions: if self.pairs() > 0 { of_rows(&self.positions) } else { self.positions.clone() },
            indices: of_rows(&self.indices),
            ..self.clone()
        }
    }

    /// Rows of the cache. Queries are rotated with its first ones.
    fn places(&self, first: usize, cache_rows: usize) -> Self {
        let mut part = self.clone();
        part.desc.cache_rows = cache_rows;
        part.low += first;
        part.rotates_queries &= first == 0;
        part.cache = self.cache.advanced(first * self.desc.cache.ld);
        part
    }

    const fn pairs(&self) -> usize {
        self.desc.rotary_dim / 2
    }

    /// Launches it in as many parts as it takes.
    fn launch_all(self, ctx: &OpContext, op: &'static str) -> BackendResult<()> {
        in_parts(ctx, op, self, |part| {
            let [of_qkv, of_cache] = part.extents();
            let bound = [part.qkv.truncated(of_qkv), part.cache.truncated(of_cache)];
            if part.desc.norm.is_some() {
                part.launch_normed(ctx, op, &bound)
            } else {
                part.launch(ctx, op, &bound)
            }
        })
    }

    fn params(&self, op: &'static str, [qkv, cache]: &[Window; 2]) -> BackendResult<RowParams> {
        let RopeAppendDesc { qkv: matrix, cache: cached, rows, heads, kv_heads, head_dim, .. } = self.desc;
        let [cos, sin] = &self.angles;
        // A leading dimension that isn't used may be any number.
        let ld = |count: usize, ld| if count > 1 { dim(op, "ld", ld) } else { Ok(0) };
        Ok(RowParams {
            count: dim(op, "rows", rows)?,
            heads: dim(op, "heads", heads)?,
            kv_heads: dim(op, "kv_heads", kv_heads)?,
            head_dim: dim(op, "head_dim", head_dim)?,
            pairs: dim(op, "rotary_dim", self.pairs())?,
            max_position: dim(op, "max_position", self.desc.max_position)?,
            rows: dim(op, "cache_rows", self.desc.cache_rows)?,
            low: dim(op, "cache_rows", self.low)?,
            qkv: qkv.offset,
            qkv_ld: ld(rows, matrix.ld)?,
            cache: cache.offset,
            cache_ld: ld(self.desc.cache_rows, cached.ld)?,
            cos: cos.offset,
            sin: sin.offset,
            positions: self.positions.offset,
            indices: self.indices.offset,
        })
    }

    fn variant(&self, source: &'static KernelSource) -> Variant {
        variant(source, [self.desc.qkv.dtype, self.desc.cache.dtype], self.desc.style)
    }

    fn launch(&self, ctx: &OpContext, op: &'static str, bound: &[Window; 2]) -> BackendResult<()> {
        let RopeAppendDesc { rows, heads, kv_heads, head_dim, .. } = self.desc;
        let pairs = self.pairs();
        let query_work =
            if self.rotates_queries { checked_product(op, "queries", &[heads, pairs])? } else { 0 };
        let key_work = checked_product(op, "keys", &[kv_heads, head_dim - pairs])?;
        let row_work = query_work + key_work + kv_heads * head_dim;
        let total = checked_product(op, "pairs", &[rows, row_work])?;
        let params = Params {
            row_work: dim(op, "row of qkv", row_work)?,
            query_work: dim(op, "queries", query_work)?,
            key_work: dim(op, "keys", key_work)?,
            total: dim(op, "pairs", total)?,
            of_rows: self.params(op, bound)?,
        };
        let [qkv, cache] = bound;
        let [cos, sin] = &self.angles;
        let reads = [cos, sin, &self.positions, &self.indices, qkv];
        ctx.launch(op, &self.variant(&APPEND), &reads, cache, &params, invocation_grid(op, total)?)
    }

    /// With norms: a workgroup has a head.
    fn launch_normed(&self, ctx: &OpContext, op: &'static str, bound: &[Window; 2]) -> BackendResult<()> {
        let RopeAppendDesc { rows, heads, kv_heads, head_dim, .. } = self.desc;
        let row_queries = if self.rotates_queries { heads } else { 0 };
        let total = checked_product(op, "heads", &[rows, row_queries.saturating_add(kv_heads)])?;
        if total == 0 {
            return Ok(());
        }
        // Sums, pairs or other elements, and values.
        iterations::require(ctx, op, "head_dim", head_dim.div_ceil(NORMED_WORKGROUP), 3)?;
        let [query_norm, key_norm] = &self.norms;
        let params = NormedParams {
            total: dim(op, "heads", total)?,
            row_queries: dim(op, "heads", row_queries)?,
            of_rows: self.params(op, bound)?,
            query_norm: query_norm.offset,
            key_norm: key_norm.offset,
            eps: self.desc.norm.map_or(0.0, |norm| norm.eps) as f32,
        };
        let [qkv, cache] = bound;
        let [cos, sin] = &self.angles;
        let reads = [cos, sin, &self.positions, &self.indices, query_norm, key_norm, qkv];
        ctx.launch(op, &self.variant(&APPEND_NORMED), &reads, cache, &params, linear_grid(op, total)?)
    }
}

impl Divisible for Part {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        let RopeAppendDesc { rows, qkv, cache, .. } = self.desc;
        let [width, cached] = self.desc.widths();
        let read = width as f64 * 2.0 * qkv.dtype.size() as f64;
        let compared = rows as f64 * SHARED_INDEX;
        let written = cached as f64 * (cache.dtype.size() as f64 + compared);
        rows as f64 * (read + written) / profile.bandwidth
    }

    fn undivided_seconds(&self, profile: &DeviceProfile) -> f64 {
        self.desc.rows as f64 / profile.iterations
    }

    fn halves(&self) -> Option<[Self; 2]> {
        halves_of(self.desc.rows, |first, count| self.rows(first, count))
    }

    fn excess(&self) -> u64 {
        self.excesses().iter().sum()
    }

    /// By rows of the cache, where those are too many to be bound.
    fn smaller_halves(&self) -> Option<[Self; 2]> {
        let [_, of_cache] = self.excesses();
        let places = || halves_of(self.desc.cache_rows, |first, rows| self.places(first, rows));
        (of_cache > 0).then(places).flatten().or_else(|| self.halves())
    }
}
