//! Which kernel makes a product, and which variant of it.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{Activation, DType, DeviceKind, MathMode};

use super::cooperative::CooperativeTile;
use super::gemv::Gemv;
use super::gemv_dot::GemvDot;
use super::kernel::Kernel;
use super::large::Large;
use super::layout::reads_as_vectors;
use super::{KernelOverride, Windows, emulated, pack, self_test};
use crate::context::Context;
use crate::ops::tile::Tile;

/// How a product is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) kernel: Kernel,
    pub(super) dtypes: [DType; 3],
    /// Whether A and B are transposed.
    pub(super) trans: [bool; 2],
    pub(super) activation: Activation,
    /// Whether `gemm/tiled` reads the operands as vectors of four.
    pub(super) vectors: bool,
    /// Which operands are copied first, to where their rows are aligned.
    pub(super) packs: [bool; 2],
    /// Whether B, which is stored transposed, is copied first to where it isn't.
    pub(super) transposes_b: bool,
    /// Into how many pieces k is split.
    pub(super) splits: usize,
    /// Whether rows and columns that whole tiles leave over are products of their own.
    pub(super) strips: bool,
    /// Whether the operands are f32 and split into parts of f16 first.
    pub(super) emulated: bool,
    /// Whether kernels can name the elements of fragments on the device.
    pub(super) element_access: bool,
}

impl Plan {
    /// The plan for a product: the one that is forced, the one that was measured to be the fastest, or the
    /// one that is estimated to be.
    pub(super) fn choose(ctx: &Context, desc: &MatmulDesc, windows: &Windows) -> Self {
        let forced = *ctx.matmul_override.lock();
        let asked = forced.or_else(|| ctx.tuning.get(desc, windows));
        let overridden = || Self::overridden(ctx, desc, windows, asked?);
        Self::emulated(ctx, desc, forced)
            .or_else(overridden)
            .unwrap_or_else(|| Self::by_estimate(ctx, desc, windows))
    }

    /// The plan that is estimated to be the fastest.
    pub(super) fn by_estimate(ctx: &Context, desc: &MatmulDesc, windows: &Windows) -> Self {
        Self::gemv(ctx, desc, windows)
            .or_else(|| Self::gemv_dot(ctx, desc, windows))
            .or_else(|| Self::skinny_cooperative(ctx, desc, windows))
            .or_else(|| Self::skinny(ctx, desc, windows))
            .or_else(|| {
                let plan = Self::cooperative(ctx, desc, pack::needed(desc, windows))?;
                let turning =
                    pays_to_transpose_b(desc).then(|| plan.transposing_b(desc).verified(ctx)).flatten();
                let plan = turning.unwrap_or(plan);
                Some(plan.with_cheap_strips(ctx, desc))
            })
            .or_else(|| Self::any_skinny(ctx, desc, windows))
            .unwrap_or_else(|| Self::tiled(ctx, desc, windows))
    }

    /// The plan with a certain kernel, if that can make the product.
    pub(super) fn overridden(
        ctx: &Context,
        desc: &MatmulDesc,
        windows: &Windows,
        KernelOverride { kernel, splits, packed, strips }: KernelOverride,
    ) -> Option<Self> {
        let plan = Self::new(ctx, desc, kernel, splits)?;
        let plan = match kernel {
            Kernel::Cooperative(_) if packed => plan.reading(desc, windows).transposing_b(desc),
            _ if packed => plan.packing(desc, windows),
            _ => plan.reading(desc, windows),
        };
        let plan = if strips { plan.with_strips(ctx, desc) } else { plan };
        plan.verified(ctx)
    }

    /// What would make [`choose`](Self::choose) choose it again.
    pub(super) fn as_forced(&self) -> KernelOverride {
        let packed = match self.kernel {
            Kernel::Cooperative(_) => self.transposes_b,
            _ => self.packs != [false; 2],
        };
        KernelOverride { kernel: self.kernel.named(), splits: self.splits, packed, strips: self.strips }
    }

    /// The same if its kernel can be trusted on this device and can read the operands, at least without
    /// naming elements of fragments.
    pub(super) fn verified(self, ctx: &Context) -> Option<Self> {
        let plainer = Self { element_access: false, ..self };
        [self, plainer].into_iter().find(|plan| plan.is_verified(ctx))
    }

    fn is_verified(&self, ctx: &Context) -> bool {
        match self.kernel {
            Kernel::Cooperative(_) => self_test::passes(ctx, self),
            Kernel::GemvDot(_) => self.vectors,
            Kernel::SkinnyCooperative(_) => self.vectors && self_test::passes(ctx, self),
            _ => true,
        }
    }

    /// A plan with this kernel, if it can make the product on this device, of operands that need no copies.
    pub(super) fn new(ctx: &Context, desc: &MatmulDesc, kernel: Kernel, splits: usize) -> Option<Self> {
        let limits = &ctx.gpu.limits;
        let kernel =
            if let Kernel::Skinny(skinny) = kernel { Kernel::Skinny(skinny.on(&limits)) } else { kernel };
        let possible = match kernel {
            Kernel::Direct | Kernel::Skinny(_) => true,
            Kernel::GemvDot(_) => GemvDot::is_possible(desc),
            Kernel::SkinnyCooperative(dots) => ctx.gpu.takes_spirv && dots.is_possible(desc, &limits),
            Kernel::Gemv(_) => Gemv::is_possible(desc, &limits),
            Kernel::Tiled(tile) => tile.fits(&limits),
            Kernel::Cooperative(tile) => {
                let halves = [desc.a.dtype, desc.b.dtype] == [DType::F16; 2];
                ctx.gpu.cooperative_matrices && tile.fits(&limits) && halves
            }
        };
        // All others begin with a product.
        let has_products = desc.k > 0 || kernel == Kernel::Direct;
        (possible && has_products)
            .then(|| Self { element_access: ctx.gpu.takes_spirv, ..Self::with_kernel(desc, kernel, splits) })
    }

    pub(super) fn with_kernel(desc: &MatmulDesc, kernel: Kernel, splits: usize) -> Self {
        Self {
            kernel: kernel.fitting(desc),
            dtypes: [desc.a.dtype, desc.b.dtype, desc.c.dtype],
            trans: [desc.trans_a.is_transposed(), desc.trans_b.is_transposed()],
            activation: desc.activation,
            vectors: false,
            packs: [false; 2],
            transposes_b: false,
            splits: if desc.batch == 1 { splits.max(1) } else { 1 },
            strips: false,
            emulated: false,
            element_access: false,
        }
    }

    /// The same for the operands as they are, which `gemm/cooperative` can't read unless they are aligned.
    pub(super) fn reading(self, desc: &MatmulDesc, windows: &Windows) -> Self {
        match self.kernel {
            Kernel::Direct | Kernel::Tiled(_) => Self { vectors: reads_as_vectors(desc, windows), ..self },
            Kernel::Cooperative(_) => self.packing(desc, windows),
            Kernel::Skinny(skinny) => {
                let vectors = Large::of(desc, skinny.transposed).reads_as_vectors(windows);
                Self { kernel: Kernel::Skinny(skinny.reading(desc, windows, self.splits)), vectors, ..self }
            }
            Kernel::Gemv(Gemv { transposed, .. }) => {
                Self { vectors: Large::of(desc, transposed).reads_as_vectors(windows), ..self }
            }
            Kernel::GemvDot(dots) => Self { vectors: dots.reads_as_vectors(desc, windows), ..self },
            Kernel::SkinnyCooperative(dots) => Self { vectors: dots.reads_as_vectors(desc, windows), ..self },
        }
    }

    /// The same for aligned copies of operands that aren't aligned.
    fn packing(self, desc: &MatmulDesc, windows: &Windows) -> Self {
        Self { packs: pack::needed(desc, windows), vectors: true, ..self }
    }

    /// The same for a copy of B that isn't transposed, where B is and can be copied so.
    fn transposing_b(self, desc: &MatmulDesc) -> Self {
        if self.packs[1] || pack::transposing_b(desc).is_none() {
            return self;
        }
        Self { transposes_b: true, trans: [self.trans[0], false], ..self }
    }

    /// An f32 product on tensor cores, if that is allowed and worth it.
    fn emulated(ctx: &Context, desc: &MatmulDesc, forced: Option<KernelOverride>) -> Option<Self> {
        if desc.math != MathMode::EmulatedF32 || desc.batch != 1 || desc.b.dtype != DType::F32 {
            return None;
        }
        let parts = emulated::product_of_parts(desc);
        let plan = match forced {
            Some(KernelOverride { kernel: kernel @ Kernel::Cooperative(_), splits, .. }) => {
                Self::new(ctx, &parts, kernel, splits)?
            }
            _ => Self::cooperative(ctx, &parts, [false; 2])?,
        };
        Self { emulated: true, ..plan }.verified(ctx)
    }

    /// The fastest plan on tensor cores, if there are some and the product is worth it and the copies.
    fn cooperative(ctx: &Context, desc: &MatmulDesc, packs: [bool; 2]) -> Option<Self> {
        // No browser offers tensor cores, and a page needn't load what plans for them.
        if cfg!(target_family = "wasm") {
            return None;
        }
        // Tensor cores would spend most of their time on zeros, or copies take longer than the product.
        let &MatmulDesc { m, n, k, .. } = desc;
        let work = m.saturating_mul(n).saturating_mul(k);
        let aligned = packs == [false; 2];
        let least = match m.min(n) >= 16 {
            true if aligned => 1 << 18,
            false if aligned => 1 << 20,
            _ => 1 << 24,
        };
        if k < 16 || work < least {
            return None;
        }
        let compute_units = ctx.gpu.profile.compute_units;
        let (tile, splits) = if streams(desc, compute_units) {
            (CooperativeTile::SHALLOW, 1)
        } else {
            fastest(desc, CooperativeTile::for_sizes(m, n), |tile, sizes| tile.time(sizes, compute_units))?
        };
        let plan = Self::new(ctx, desc, Kernel::Cooperative(tile), splits)?;
        Self { packs, ..plan }.verified(ctx)
    }

    /// The fastest plan without tensor cores, which any device and product allow.
    fn tiled(ctx: &Context, desc: &MatmulDesc, windows: &Windows) -> Self {
        let limits = &ctx.gpu.limits;
        let compute_units = ctx.gpu.profile.compute_units;
        let tiles = Tile::ALL.into_iter().filter(|tile| tile.fits(&limits));
        let tiled = fastest(desc, tiles, |tile, sizes| tile.time(sizes, compute_units));
        // A CPU has no workgroup memory to stage anything in.
        let (kernel, splits) = match tiled {
            Some((tile, splits)) if ctx.gpu.info.kind != DeviceKind::SoftwareAdapter && desc.k > 0 => {
                (Kernel::Tiled(tile), splits)
            }
            _ => (Kernel::Direct, 1),
        };
        let plan = Self::with_kernel(desc, kernel, splits).reading(desc, windows);
        // Reading element by element costs a tenth of a long product, copies less.
        let &MatmulDesc { m, n, k, .. } = desc;
        let is_long = m.min(n) >= 256 && m.saturating_mul(n).saturating_mul(k) >= 1 << 31;
        if is_long && !plan.vectors { plan.packing(desc, windows) } else { plan }
    }

    /// The same kernel for a part of each sum, which is neither rounded nor finished.
    pub(super) fn piece(&self) -> Self {
        let [a, b, _] = self.dtypes;
        Self { dtypes: [a, b, DType::F32], activation: Activation::Identity, splits: 1, ..*self }
    }
}

/// Whether a product on tensor cores, which takes a tenth longer where B's rows run along k, is large enough
/// that a copy of B takes less.
fn pays_to_transpose_b(&MatmulDesc { m, n, k, .. }: &MatmulDesc) -> bool {
    m >= 2048 && n.saturating_mul(k) >= 1 << 23
}

/// Whether a product takes as long as reading B does, which goes once past a single row of tiles and many
/// times round the device: the estimate of a step doesn't count the waiting.
fn streams(desc: &MatmulDesc, compute_units: usize) -> bool {
    let tile = CooperativeTile::SHALLOW;
    let &MatmulDesc { m, n, batch, .. } = desc;
    let tiles = tile.count(m, n).saturating_mul(batch);
    m <= tile.m && 2 * m > tile.m && !desc.trans_b.is_transposed() && tiles >= 2 * compute_units
}

/// The tile, and the number of pieces of k, that are estimated to take the least time. `time` estimates that
/// of a tile for m, n, k and the number of products.
fn fastest<T: Copy>(
    desc: &MatmulDesc,
    tiles: impl Iterator<Item = T>,
    time: impl Fn(T, [usize; 4]) -> usize,
) -> Option<(T, usize)> {
    let &MatmulDesc { m, n, k, batch, .. } = desc;
    let choices = tiles.flat_map(|tile| {
        let splits = [1, 2, 4, 8, 16, 32].into_iter();
        splits
            .filter(move |&splits| splits == 1 || batch == 1 && k / splits >= 256)
            .map(move |splits| (tile, splits))
    });
    choices.min_by_key(|&(tile, splits)| {
        let combining = if splits == 1 { 0 } else { 3000 + m.saturating_mul(n).saturating_mul(splits) / 250 };
        time(tile, [m, n, k / splits, batch.saturating_mul(splits)]).saturating_add(combining)
    })
}

/// Such as `cooperative/128x128x32+split4, packs A`: what [`KernelOverride`](super::KernelOverride) reads,
/// and what else there is to know.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.emulated {
            f.write_str("emulated on ")?;
        }
        write!(f, "{}", self.as_forced())?;
        match self.packs {
            [false, false] => {}
            [true, false] => f.write_str(", packs A")?,
            [false, true] => f.write_str(", packs B")?,
            [true, true] => f.write_str(", packs A and B")?,
        }
        if !matches!(self.kernel, Kernel::Cooperative(_)) && !self.vectors {
            f.write_str(", element by element")?;
        }
        Ok(())
    }
}
