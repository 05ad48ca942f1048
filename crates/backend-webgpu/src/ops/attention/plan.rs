//! Which kernel computes attention, and how.

use std::fmt;

use backend_api::DType;
use backend_api::desc::{AttentionDesc, HeadStrides};

use super::flash::FlashTile;
use super::split::{ROWS, shared_rows};
use super::{Forced, Windows};
use crate::context::Context;
use crate::ops::matmul::multiprocessors;
use crate::recorder::Window;

/// A kernel with the size of its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    Flash(FlashTile),
    /// With so many rows in a workgroup.
    Split(usize),
}

/// How attention is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) kernel: Kernel,
    /// Whether operands are read 16 bytes at a time.
    pub(super) wide: bool,
    /// Pieces of the keys.
    pub(super) splits: usize,
}

/// The most queries for which the keys are split.
const FEW_QUERIES: usize = 8;

/// Workgroups of attention/split on a multiprocessor, and the fewest keys that are worth one.
const WORKGROUPS: usize = 4;
const LEAST_KEYS: usize = 64;

impl Kernel {
    /// Every kernel in every tile.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        FlashTile::ALL.into_iter().map(Self::Flash).chain(ROWS.into_iter().map(Self::Split))
    }

    /// Whether it can do it on this device.
    fn suits(self, ctx: &Context, desc: &AttentionDesc) -> bool {
        match self {
            Self::Flash(tile) => tile.head_dim() >= desc.head_dim && tile.fits(&ctx.gpu.device.limits()),
            Self::Split(_) => true,
        }
    }
}

impl Plan {
    /// The plan: the one that is forced, if it is possible, or the one that should be the fastest.
    pub(super) fn choose(ctx: &Context, desc: &AttentionDesc, windows: &Windows) -> Self {
        let wide = reads_wide(desc, windows);
        if let Some(Forced { kernel, splits }) = *ctx.forced_attention.lock()
            && kernel.suits(ctx, desc)
        {
            return Self { kernel, wide, splits: splits.min(desc.seq_kv.max(1)) };
        }
        let multiprocessors = multiprocessors(ctx.gpu.info.kind);
        if desc.seq_q <= FEW_QUERIES {
            let shared = shared_rows(desc);
            let rows = ROWS.into_iter().find(|&rows| rows >= shared).unwrap_or(ROWS[ROWS.len() - 1]);
            let tiles = shared.div_ceil(rows).saturating_mul(desc.kv_heads).saturating_mul(desc.batch);
            let splits = multiprocessors * WORKGROUPS / tiles.max(1);
            let splits = splits.clamp(1, desc.seq_kv.div_ceil(LEAST_KEYS).max(1));
            return Self { kernel: Kernel::Split(rows), wide, splits };
        }
        let heads = desc.heads.saturating_mul(desc.batch);
        let tile = FlashTile::choose(desc.head_dim, desc.seq_q, heads, multiprocessors);
        Self { kernel: Kernel::Flash(tile), wide, splits: 1 }
    }
}

/// Whether every vector of Q, K and V starts at 16 bytes and has whole groups of them.
fn reads_wide(desc: &AttentionDesc, windows: &Windows) -> bool {
    let unit = |dtype: DType| 16 / dtype.size();
    let [q, k, v, _] = desc.strides();
    let fits = |window: &Window, dtype: DType, heads: usize, seq: usize, strides: HeadStrides| {
        let HeadStrides { batch, head, token } = strides;
        // A stride that leads nowhere may be any number.
        let used = [(desc.batch, batch), (heads, head), (seq, token)].into_iter().filter(|&(n, _)| n > 1);
        (window.offset as usize).is_multiple_of(unit(dtype))
            && used.into_iter().all(|(_, stride)| stride.is_multiple_of(unit(dtype)))
    };
    desc.head_dim.is_multiple_of(unit(desc.kv_dtype).max(unit(desc.dtype)))
        && fits(&windows.q, desc.dtype, desc.heads, desc.seq_q, q)
        && fits(&windows.k, desc.kv_dtype, desc.kv_heads, desc.seq_kv, k)
        && fits(&windows.v, desc.kv_dtype, desc.kv_heads, desc.seq_kv, v)
}

/// Such as `split/4+split16` or `flash/64x64x64r8, element by element`: what [`Forced`] reads, and what else there is
/// to know.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Forced { kernel: self.kernel, splits: self.splits })?;
        if self.wide { Ok(()) } else { f.write_str(", element by element") }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flash(tile) => tile.fmt(f),
            Self::Split(rows) => write!(f, "split/{rows}"),
        }
    }
}
