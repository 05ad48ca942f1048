//! The product of queries, keys and values in one launch with the rotation and the cache that follow it.
//!
//! Each takes a launch of its own, and the second waits for the first, which costs as much as its work. Behind each other in
//! a graph, as in a decoder's captured step, one launch makes both: an element and its pair are in one workgroup, if
//! pairs are neighbours. A head that is normalised is finished by the last of its workgroups.

use backend_api::desc::{QuantMatmulDesc, RopeAppendDesc, RopeStyle};
use backend_api::{Activation, BackendResult};

use super::kernel::{Appended, Kernel, Signature};
use super::operands::{Params, ProductParams};
use crate::context::{FIXUP_COUNTERS, FIXUP_WORDS};
use crate::kernels::params;
use crate::ops::capture::{Made, Replaced};
use crate::ops::op_context::{OpContext, dim};
use crate::recorder::Window;

/// Rows of A up to which a product's launch also writes the cache.
const MOST_ROWS: usize = 32;

/// Elements of a head that is normalised, at most, as lib/quant_results_qk_norm has them.
const NORMED_ELEMENTS: usize = 1024;
const NORMED_BYTES: usize = NORMED_ELEMENTS * size_of::<f32>() + size_of::<u32>();

params! {
    /// What kernels have to know of a product and of the cache.
    pub(super) struct AppendParams {
        product: ProductParams,
        bias: u32,
        terms: u32,
        alpha: f32,
        half: u32,
        norm: u32,
        eps: f32,
        // Columns of keys, and of values.
        kv_width: u32,
        // Elements of a head, and from bit 16 on the pairs of them that are rotated.
        head: u32,
        max_position: u32,
        // The first cosine, sine, position and index of a binding, a byte each.
        origins: u32,
        cache_rows: u32,
        cache: u32,
        cache_ld: u32,
    }
}

/// The launch that makes all of a product, with which another one can share its work.
#[derive(Debug)]
pub(in crate::ops) struct QkvProduct {
    rows: usize,
    kernel: Kernel,
    signature: Signature,
    /// Its read-only bindings but for a residual.
    reads: Vec<Window>,
    c: Window,
    c_ld: usize,
    columns: usize,
    params: Params,
    grid: [u32; 3],
}

/// What a rotation and a cache bind besides the product's.
#[derive(Debug)]
pub(in crate::ops) struct AppendWindows {
    pub(in crate::ops) qkv: Window,
    pub(in crate::ops) cache: Window,
    /// Cosines, sines, positions and indices.
    pub(in crate::ops) reads: [Window; 4],
    /// The weights of the norms of queries and keys, if heads are normalised.
    pub(in crate::ops) norms: Option<[Window; 2]>,
}

impl QkvProduct {
    /// The product that a kernel makes with these read-only bindings, the last of them the norm's weight or a residual;
    /// `None` if its results aren't what a cache takes.
    pub(super) fn new(
        desc: &QuantMatmulDesc,
        kernel: Kernel,
        signature: Signature,
        reads: &[&Window; 7],
        c: &Window,
        params: &Params,
        grid: [u32; 3],
    ) -> Option<Self> {
        let is_plain =
            desc.gate.is_none() && desc.residual.is_none() && desc.activation == Activation::Identity;
        let [own @ .., norm] = reads;
        (is_plain && kernel.may_append()).then(|| Self {
            rows: desc.m,
            kernel,
            signature,
            reads: own.iter().chain(desc.norm.map(|_| norm)).map(|&window| window.clone()).collect(),
            c: c.clone(),
            c_ld: desc.c.ld,
            columns: desc.n(),
            params: *params,
            grid,
        })
    }

    /// Has the product's launch rotate its queries and append its keys and values to a cache too; whether it does. `made` is
    /// this product.
    pub(in crate::ops) fn append(
        &self,
        ctx: &OpContext,
        op: &'static str,
        made: &Made,
        desc: &RopeAppendDesc,
        windows: &AppendWindows,
    ) -> BackendResult<bool> {
        let AppendWindows { qkv, cache, reads, norms } = windows;
        let [width, _] = desc.widths();
        let kv_width = desc.kv_heads.saturating_mul(desc.head_dim);
        // Values of another format are a product of their own, before this one.
        let has_values_before = self.columns == width - kv_width;
        // Each element of keys and values looks at the indices of all rows.
        let is_its_product = desc.rows == self.rows
            && desc.rows <= MOST_ROWS
            && (width == self.columns || has_values_before)
            && desc.qkv.dtype == self.signature.dtypes[1]
            && (desc.rows <= 1 || desc.qkv.ld == self.c_ld)
            && qkv.is_at(&self.c);
        let has_pairs_side_by_side = desc.style == RopeStyle::Interleaved && desc.head_dim.is_multiple_of(2);
        // A head that is normalised is in one workgroup at the end.
        if !(is_its_product && (has_pairs_side_by_side || norms.is_some())) {
            return Ok(false);
        }
        let origins = reads.each_ref().map(|window| u8::try_from(window.offset));
        let ([Ok(cos), Ok(sin), Ok(positions), Ok(indices)], Ok(head_dim)) =
            (origins, u16::try_from(desc.head_dim))
        else {
            return Ok(false);
        };
        let Params { product, bias, mut terms, alpha, half, norm, mut eps, .. } = self.params;
        if has_values_before {
            terms |= HAS_VALUES_BEFORE;
        }
        let mut fixup = None;
        if let (Some(norms), Some(of_heads)) = (norms, desc.norm) {
            let [Ok(query), Ok(key)] = norms.each_ref().map(|window| u8::try_from(window.offset)) else {
                return Ok(false);
            };
            // Parameters have room for one.
            let has_one_eps = !self.signature.normed || eps == of_heads.eps as f32;
            if !(has_one_eps && self.may_normalise_heads(ctx, desc)) {
                return Ok(false);
            }
            terms |= u32::from_le_bytes([0, 0, query, key]);
            if desc.style == RopeStyle::Half {
                terms |= HAS_HALVES;
            }
            eps = of_heads.eps as f32;
            // Two launches need no memory for it.
            let Ok(words) = ctx.fixup() else { return Ok(false) };
            fixup = Some(words);
        }
        let params = AppendParams {
            product,
            bias,
            terms,
            alpha,
            half,
            norm,
            eps,
            kv_width: dim(op, "kv_heads", kv_width)?,
            head: u32::from(head_dim) | dim(op, "rotary_dim", desc.rotary_dim / 2)? << 16,
            max_position: dim(op, "max_position", desc.max_position)?,
            origins: u32::from_le_bytes([cos, sin, positions, indices]),
            cache_rows: dim(op, "cache_rows", desc.cache_rows)?,
            cache: cache.offset,
            // A leading dimension that leads nowhere may be any number.
            cache_ld: if desc.cache_rows > 1 { dim(op, "ld of the cache", desc.cache.ld)? } else { 0 },
        };
        let cache_of = Appended { dtype: desc.cache.dtype, qk_norm: fixup.is_some() };
        let variant = self.kernel.variant(&Signature { cache: Some(cache_of), ..self.signature });
        let reads = self.reads.iter().chain(reads).chain(norms.iter().flatten());
        let windows = reads.chain([qkv, cache]).chain(&fixup);
        ctx.replace(op, (made, Replaced::Launch), &variant, windows, bytemuck::bytes_of(&params), self.grid)
    }

    /// Whether the last workgroup of a head can normalise it: a workgroup has columns of one head, and there are counters and room
    /// for all heads of queries and keys. Of several rows, a launch of its own normalises heads faster.
    fn may_normalise_heads(&self, ctx: &OpContext, desc: &RopeAppendDesc) -> bool {
        let [_, columns] = self.kernel.tile(false);
        let heads = desc.heads.saturating_add(desc.kv_heads);
        ctx.has_fixup()
            && desc.rows == 1
            && desc.head_dim.is_multiple_of(columns)
            && desc.head_dim <= NORMED_ELEMENTS
            && heads <= FIXUP_COUNTERS
            && heads * desc.head_dim <= FIXUP_WORDS - FIXUP_COUNTERS
            && self.kernel.has_room_beside(ctx, self.signature.normed, NORMED_BYTES)
    }
}

/// Bits of the parameter `terms`.
const HAS_VALUES_BEFORE: u32 = 8;
const HAS_HALVES: u32 = 16;
