//! Which kernel makes a product, and which variant of it.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{Activation, DType, DeviceKind, MathMode};

use super::cooperative::CooperativeTile;
use super::dots::Dots;
use super::kernel::Kernel;
use super::large::Large;
use super::layout::reads_as_vectors;
use super::matvec::Matvec;
use super::{Forced, Windows, emulated, pack, proof};
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
    /// Whether `gemm/tiled` reads the factors as vectors of four.
    pub(super) vectors: bool,
    /// Which factors are copied first, to where their rows are aligned.
    pub(super) packs: [bool; 2],
    /// Whether B, which is stored transposed, is copied first to where it isn't.
    pub(super) turns_b: bool,
    /// Into how many pieces k is split.
    pub(super) splits: usize,
    /// Whether rows and columns that whole tiles leave over are products of their own.
    pub(super) strips: bool,
    /// Whether the factors are f32 and split into parts of f16 first.
    pub(super) emulated: bool,
    /// Whether kernels can name the elements of fragments on the device.
    pub(super) names_elements: bool,
}

impl Plan {
    /// The plan for a product: the one that is forced, the one that was measured to be the fastest, or the one that is
    /// estimated to be.
    pub(super) fn choose(ctx: &Context, desc: &MatmulDesc, windows: &Windows) -> Self {
        let forced = *ctx.forced_matmul.lock();
        let asked = forced.or_else(|| ctx.tuning.get(desc, windows));
        let as_asked = || Self::as_asked(ctx, desc, windows, asked?);
        Self::emulated(ctx, desc, forced)
            .or_else(as_asked)
            .unwrap_or_else(|| Self::by_estimate(ctx, desc, windows))
    }

    /// The plan that is estimated to be the fastest.
    pub(super) fn by_estimate(ctx: &Context, desc: &MatmulDesc, windows: &Windows) -> Self {
        Self::matvec(ctx, desc, windows)
            .or_else(|| Self::dots(ctx, desc, windows))
            .or_else(|| Self::cooperative_dots(ctx, desc, windows))
            .or_else(|| Self::skinny(ctx, desc, windows))
            .or_else(|| {
                let plan = Self::cooperative(ctx, desc, pack::needed(desc, windows))?;
                let turning = pays_to_turn_b(desc).then(|| plan.turning_b(desc).trusted(ctx)).flatten();
                let plan = turning.unwrap_or(plan);
                Some(plan.with_cheap_strips(ctx, desc))
            })
            .or_else(|| Self::any_skinny(ctx, desc, windows))
            .unwrap_or_else(|| Self::tiled(ctx, desc, windows))
    }

    /// The plan with a certain kernel, if that can make the product.
    pub(super) fn as_asked(
        ctx: &Context,
        desc: &MatmulDesc,
        windows: &Windows,
        Forced { kernel, splits, packed, strips }: Forced,
    ) -> Option<Self> {
        let plan = Self::new(ctx, desc, kernel, splits)?;
        let plan = match kernel {
            Kernel::Cooperative(_) if packed => plan.reading(desc, windows).turning_b(desc),
            _ if packed => plan.packing(desc, windows),
            _ => plan.reading(desc, windows),
        };
        let plan = if strips { plan.with_strips(ctx, desc) } else { plan };
        plan.trusted(ctx)
    }

    /// What would make [`choose`](Self::choose) choose it again.
    pub(super) fn as_forced(&self) -> Forced {
        let packed = match self.kernel {
            Kernel::Cooperative(_) => self.turns_b,
            _ => self.packs != [false; 2],
        };
        Forced { kernel: self.kernel.named(), splits: self.splits, packed, strips: self.strips }
    }

    /// The same if its kernel can be trusted on this device and can read the factors, at least without naming elements of
    /// fragments.
    pub(super) fn trusted(self, ctx: &Context) -> Option<Self> {
        let plainer = Self { names_elements: false, ..self };
        [self, plainer].into_iter().find(|plan| plan.works(ctx))
    }

    fn works(&self, ctx: &Context) -> bool {
        match self.kernel {
            Kernel::Cooperative(_) => proof::holds(ctx, self),
            Kernel::Dots(_) => self.vectors,
            Kernel::CooperativeDots(_) => self.vectors && proof::holds(ctx, self),
            _ => true,
        }
    }

    /// A plan with this kernel, if it can make the product on this device, of factors that need no copies.
    pub(super) fn new(ctx: &Context, desc: &MatmulDesc, kernel: Kernel, splits: usize) -> Option<Self> {
        let limits = ctx.gpu.device.limits();
        let kernel =
            if let Kernel::Skinny(skinny) = kernel { Kernel::Skinny(skinny.on(&limits)) } else { kernel };
        let possible = match kernel {
            Kernel::Direct | Kernel::Skinny(_) => true,
            Kernel::Dots(_) => Dots::is_possible(desc),
            Kernel::CooperativeDots(dots) => ctx.gpu.takes_spirv && dots.is_possible(desc, &limits),
            Kernel::Matvec(_) => Matvec::is_possible(desc, &limits),
            Kernel::Tiled(tile) => tile.fits(&limits),
            Kernel::Cooperative(tile) => {
                let halves = [desc.a.dtype, desc.b.dtype] == [DType::F16; 2];
                ctx.gpu.cooperative_matrices && tile.fits(&limits) && halves
            }
        };
        // All others begin with a product.
        let has_products = desc.k > 0 || kernel == Kernel::Direct;
        (possible && has_products)
            .then(|| Self { names_elements: ctx.gpu.takes_spirv, ..Self::with_kernel(desc, kernel, splits) })
    }

    pub(super) fn with_kernel(desc: &MatmulDesc, kernel: Kernel, splits: usize) -> Self {
        Self {
            kernel: kernel.fitting(desc),
            dtypes: [desc.a.dtype, desc.b.dtype, desc.c.dtype],
            trans: [desc.trans_a.is_transposed(), desc.trans_b.is_transposed()],
            activation: desc.activation,
            vectors: false,
            packs: [false; 2],
            turns_b: false,
            splits: if desc.batch == 1 { splits.max(1) } else { 1 },
            strips: false,
            emulated: false,
            names_elements: false,
        }
    }

    /// The same for the factors as they are, which `gemm/cooperative` can't read unless they are aligned.
    pub(super) fn reading(self, desc: &MatmulDesc, windows: &Windows) -> Self {
        match self.kernel {
            Kernel::Direct | Kernel::Tiled(_) => Self { vectors: reads_as_vectors(desc, windows), ..self },
            Kernel::Cooperative(_) => self.packing(desc, windows),
            Kernel::Skinny(skinny) => {
                let vectors = Large::of(desc, skinny.transposed).reads_as_vectors(windows);
                Self { kernel: Kernel::Skinny(skinny.reading(desc, windows, self.splits)), vectors, ..self }
            }
            Kernel::Matvec(Matvec { transposed, .. }) => {
                Self { vectors: Large::of(desc, transposed).reads_as_vectors(windows), ..self }
            }
            Kernel::Dots(dots) => Self { vectors: dots.reads_as_vectors(desc, windows), ..self },
            Kernel::CooperativeDots(dots) => Self { vectors: dots.reads_as_vectors(desc, windows), ..self },
        }
    }

    /// The same for aligned copies of factors that aren't aligned.
    fn packing(self, desc: &MatmulDesc, windows: &Windows) -> Self {
        Self { packs: pack::needed(desc, windows), vectors: true, ..self }
    }

    /// The same for a copy of B that isn't transposed, where B is and can be copied so.
    fn turning_b(self, desc: &MatmulDesc) -> Self {
        if self.packs[1] || pack::turning_b(desc).is_none() {
            return self;
        }
        Self { turns_b: true, trans: [self.trans[0], false], ..self }
    }

    /// An f32 product on matrix units, if that is allowed and worth it.
    fn emulated(ctx: &Context, desc: &MatmulDesc, forced: Option<Forced>) -> Option<Self> {
        if desc.math != MathMode::EmulatedF32 || desc.batch != 1 || desc.b.dtype != DType::F32 {
            return None;
        }
        let parts = emulated::product_of_parts(desc);
        let plan = match forced {
            Some(Forced { kernel: kernel @ Kernel::Cooperative(_), splits, .. }) => {
                Self::new(ctx, &parts, kernel, splits)?
            }
            _ => Self::cooperative(ctx, &parts, [false; 2])?,
        };
        Self { emulated: true, ..plan }.trusted(ctx)
    }

    /// The fastest plan on matrix units, if there are some and the product is worth it and the copies.
    fn cooperative(ctx: &Context, desc: &MatmulDesc, packs: [bool; 2]) -> Option<Self> {
        // No browser offers matrix units, and a page needn't load what plans for them.
        if cfg!(target_family = "wasm") {
            return None;
        }
        // Matrix units would spend most of their time on zeros, or copies take longer than the product.
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
        let multiprocessors = ctx.gpu.profile.compute_units;
        let (tile, splits) = if streams(desc, multiprocessors) {
            (CooperativeTile::SHALLOW, 1)
        } else {
            fastest(desc, CooperativeTile::for_sizes(m, n), |tile, sizes| tile.time(sizes, multiprocessors))?
        };
        let plan = Self::new(ctx, desc, Kernel::Cooperative(tile), splits)?;
        Self { packs, ..plan }.trusted(ctx)
    }

    /// The fastest plan without matrix units, which any device and product allow.
    fn tiled(ctx: &Context, desc: &MatmulDesc, windows: &Windows) -> Self {
        let limits = ctx.gpu.device.limits();
        let multiprocessors = ctx.gpu.profile.compute_units;
        let tiles = Tile::ALL.into_iter().filter(|tile| tile.fits(&limits));
        let tiled = fastest(desc, tiles, |tile, sizes| tile.time(sizes, multiprocessors));
        // A processor has no workgroup memory to stage anything in.
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

/// Whether a product on matrix units, which takes a tenth longer where B's rows run along k, is large enough that a copy
/// of B takes less.
fn pays_to_turn_b(&MatmulDesc { m, n, k, .. }: &MatmulDesc) -> bool {
    m >= 2048 && n.saturating_mul(k) >= 1 << 23
}

/// Whether a product takes as long as reading B does, which goes once past a single row of tiles and many times round the
/// device: the estimate of a step doesn't count the waiting.
fn streams(desc: &MatmulDesc, multiprocessors: usize) -> bool {
    let tile = CooperativeTile::SHALLOW;
    let &MatmulDesc { m, n, batch, .. } = desc;
    let tiles = tile.count(m, n).saturating_mul(batch);
    m <= tile.m && 2 * m > tile.m && !desc.trans_b.is_transposed() && tiles >= 2 * multiprocessors
}

/// The tile, and the number of pieces of k, that are estimated to take the least time. `time` estimates that of a tile
/// for m, n, k and the number of products.
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

/// Such as `cooperative/128x128x32+split4, packs A`: what [`Forced`](super::Forced) reads, and what else there is to
/// know.
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
