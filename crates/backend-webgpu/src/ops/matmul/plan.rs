//! Which kernel makes a product, and which variant of it.

use std::fmt;

use backend_api::desc::{MatmulDesc, Matrix};
use backend_api::{Activation, DType, DeviceKind, MathMode};

use super::cooperative::CooperativeTile;
use super::{Forced, Params, Windows, activation_code, emulated, fragments, pack, proof};
use crate::context::Context;
use crate::kernels::{KernelSource, Variant, kernel};
use crate::ops::tile::{TILE_CONSTANTS, Tile};
use crate::recorder::Window;

static TILED: KernelSource = kernel!(
    "gemm/tiled",
    libs: [GRID, SPECIAL, UNARY, ACTIVATE, MATMUL, FACTOR_BLOCKS, TILE_PRODUCT],
    types: ["TA", "TB", "TC"],
    constants: with_tile(["VEC", "TRANS_A", "TRANS_B", "ACTIVATION"]),
    reads: 5,
    writes: 1,
    params: Params,
);

static DIRECT: KernelSource = kernel!(
    "gemm/direct",
    libs: [GRID, SPECIAL, UNARY, ACTIVATE, MATMUL, FACTOR_BLOCKS],
    types: ["TA", "TB", "TC"],
    constants: ["VEC", "TRANS_A", "TRANS_B", "ACTIVATION"],
    reads: 5,
    writes: 1,
    params: Params,
);

/// Rows and columns of a workgroup of `gemm/direct`.
const DIRECT_TILE: usize = 32;

static COOPERATIVE: KernelSource = KernelSource {
    unrolled: Some(fragments::multiply),
    ..kernel!(
        "gemm/cooperative",
        libs: [GRID, SPECIAL, UNARY, ACTIVATE, MATMUL],
        types: ["TA", "TB", "TC"],
        constants: [
            "TILE_M",
            "TILE_N",
            "TILE_K",
            "SUBGROUPS_M",
            "SUBGROUPS_N",
            "TRANS_A",
            "TRANS_B",
            "ACTIVATION",
        ],
        reads: 3,
        writes: 2,
        params: Params,
    )
};

/// The names of a tile's constants, followed by others.
const fn with_tile(rest: [&'static str; 4]) -> [&'static str; 10] {
    let [m, n, k, thread_m, thread_n, stages] = TILE_CONSTANTS;
    let [vectors, trans_a, trans_b, activation] = rest;
    [m, n, k, thread_m, thread_n, stages, vectors, trans_a, trans_b, activation]
}

/// A kernel with the size of its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    Direct,
    Tiled(Tile),
    Cooperative(CooperativeTile),
}

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
    /// Into how many pieces k is split.
    pub(super) splits: usize,
    /// Whether the factors are f32 and split into parts of f16 first.
    pub(super) emulated: bool,
}

impl Kernel {
    /// Every kernel in every tile.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let tiled = Tile::ALL.into_iter().map(Self::Tiled);
        let cooperative = CooperativeTile::ALL.into_iter().map(Self::Cooperative);
        std::iter::once(Self::Direct).chain(tiled).chain(cooperative)
    }
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
        Self::cooperative(ctx, desc, pack::needed(desc, windows))
            .unwrap_or_else(|| Self::tiled(ctx, desc, windows))
    }

    /// The plan with a certain kernel, if that can make the product.
    pub(super) fn as_asked(
        ctx: &Context,
        desc: &MatmulDesc,
        windows: &Windows,
        Forced { kernel, splits }: Forced,
    ) -> Option<Self> {
        Some(Self::new(ctx, desc, kernel, splits)?.reading(desc, windows)).filter(|plan| plan.works(ctx))
    }

    /// What would make [`choose`](Self::choose) choose it again.
    pub(super) fn as_forced(&self) -> Forced {
        Forced { kernel: self.kernel, splits: self.splits }
    }

    /// Whether its kernel can be trusted on this device.
    fn works(&self, ctx: &Context) -> bool {
        !matches!(self.kernel, Kernel::Cooperative(_)) || proof::holds(ctx, self)
    }

    /// A plan with this kernel, if it can make the product on this device, of factors that need no copies.
    fn new(ctx: &Context, desc: &MatmulDesc, kernel: Kernel, splits: usize) -> Option<Self> {
        let limits = ctx.gpu.device.limits();
        let possible = match kernel {
            Kernel::Direct => true,
            Kernel::Tiled(tile) => tile.fits(&limits),
            Kernel::Cooperative(tile) => {
                let halves = [desc.a.dtype, desc.b.dtype] == [DType::F16; 2];
                ctx.gpu.cooperative_matrices && tile.fits(&limits) && desc.k > 0 && halves
            }
        };
        possible.then(|| Self {
            kernel,
            dtypes: [desc.a.dtype, desc.b.dtype, desc.c.dtype],
            trans: [desc.trans_a.is_transposed(), desc.trans_b.is_transposed()],
            activation: desc.activation,
            vectors: false,
            packs: [false; 2],
            splits: if desc.batch == 1 { splits.max(1) } else { 1 },
            emulated: false,
        })
    }

    /// The same for the factors as they are.
    fn reading(self, desc: &MatmulDesc, windows: &Windows) -> Self {
        match self.kernel {
            Kernel::Direct | Kernel::Tiled(_) => Self { vectors: reads_as_vectors(desc, windows), ..self },
            Kernel::Cooperative(_) => Self { packs: pack::needed(desc, windows), ..self },
        }
    }

    /// An f32 product on matrix units, if that is allowed and worth it.
    fn emulated(ctx: &Context, desc: &MatmulDesc, forced: Option<Forced>) -> Option<Self> {
        if desc.math != MathMode::EmulatedF32 || desc.batch != 1 || desc.b.dtype != DType::F32 {
            return None;
        }
        let parts = emulated::product_of_parts(desc);
        let plan = match forced {
            Some(Forced { kernel: kernel @ Kernel::Cooperative(_), splits }) => {
                Self::new(ctx, &parts, kernel, splits)?
            }
            _ => Self::cooperative(ctx, &parts, [false; 2])?,
        };
        Some(Self { emulated: true, ..plan }).filter(|plan| plan.works(ctx))
    }

    /// The fastest plan on matrix units, if there are some and the product is worth it and the copies.
    fn cooperative(ctx: &Context, desc: &MatmulDesc, packs: [bool; 2]) -> Option<Self> {
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
        let multiprocessors = multiprocessors(ctx.gpu.info.kind);
        let plans = CooperativeTile::ALL.into_iter().flat_map(|tile| {
            let splits =
                [1, 2, 4, 8, 16, 32].into_iter().filter(move |&splits| splits == 1 || k / splits >= 256);
            splits.map(move |splits| (tile, splits))
        });
        let (tile, splits) =
            plans.filter(|&(_, splits)| splits == 1 || desc.batch == 1).min_by_key(|&(tile, splits)| {
                let tiles = tile.count(m, n).saturating_mul(desc.batch).saturating_mul(splits);
                let combining = if splits == 1 { 0 } else { 3000 + m * n * splits / 250 };
                tile.time(tiles, k / splits, multiprocessors).saturating_add(combining)
            })?;
        let plan = Self::new(ctx, desc, Kernel::Cooperative(tile), splits)?;
        Some(Self { packs, ..plan }).filter(|plan| plan.works(ctx))
    }

    /// The fastest plan without matrix units, which any device and product allow.
    fn tiled(ctx: &Context, desc: &MatmulDesc, windows: &Windows) -> Self {
        let &MatmulDesc { m, n, k, batch, .. } = desc;
        let tile = Tile::choose(&ctx.gpu.device.limits(), m, n, batch);
        // Where tiles are few and sums are long, multiprocessors that would be idle take a part of the sums.
        let kind = ctx.gpu.info.kind;
        let workgroups = multiprocessors(kind) * (512 / tile.threads()).max(1);
        let idle = workgroups / tile.count(m, n).max(1);
        let splits = if batch == 1 && k >= 2048 { idle.min(k / 256).max(1) } else { 1 };
        Self {
            // A processor has no workgroup memory to stage anything in.
            kernel: if kind == DeviceKind::SoftwareAdapter { Kernel::Direct } else { Kernel::Tiled(tile) },
            dtypes: [desc.a.dtype, desc.b.dtype, desc.c.dtype],
            trans: [desc.trans_a.is_transposed(), desc.trans_b.is_transposed()],
            activation: desc.activation,
            vectors: reads_as_vectors(desc, windows),
            packs: [false; 2],
            splits,
            emulated: false,
        }
    }

    /// The same kernel for a part of each sum, which is neither rounded nor finished.
    pub(super) fn piece(&self) -> Self {
        let [a, b, _] = self.dtypes;
        Self { dtypes: [a, b, DType::F32], activation: Activation::Identity, splits: 1, ..*self }
    }

    /// Rows and columns of a tile.
    pub(super) fn tile(&self) -> [usize; 2] {
        match self.kernel {
            Kernel::Direct => [DIRECT_TILE; 2],
            Kernel::Tiled(tile) => [tile.m, tile.n],
            Kernel::Cooperative(tile) => [tile.m, tile.n],
        }
    }

    /// What the kernel reads, in the order of its bindings. C follows; `gemm/cooperative` binds it twice.
    pub(super) fn inputs<'a>(&self, windows: &'a Windows) -> Vec<&'a Window> {
        let Windows { a, b, bias, c } = windows;
        match self.kernel {
            Kernel::Direct | Kernel::Tiled(_) => vec![a, a, b, b, bias],
            Kernel::Cooperative(_) => vec![a, b, bias, c],
        }
    }

    pub(super) fn variant(&self) -> Variant {
        let [trans_a, trans_b] = self.trans.map(u32::from);
        let activation = activation_code(self.activation);
        match self.kernel {
            Kernel::Direct => {
                let vectors = u32::from(self.vectors);
                Variant::new(&DIRECT, self.dtypes, [vectors, trans_a, trans_b, activation])
            }
            Kernel::Tiled(tile) => {
                let [m, n, k, thread_m, thread_n, stages] = tile.constants();
                let vectors = u32::from(self.vectors);
                let constants = [m, n, k, thread_m, thread_n, stages, vectors, trans_a, trans_b, activation];
                Variant::new(&TILED, self.dtypes, constants)
            }
            Kernel::Cooperative(tile) => {
                let [m, n, k, rows, columns] = tile.constants();
                let constants = [m, n, k, rows, columns, trans_a, trans_b, activation];
                Variant::new(&COOPERATIVE, self.dtypes, constants)
            }
        }
    }
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

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => write!(f, "direct/{DIRECT_TILE}x{DIRECT_TILE}x4"),
            Self::Tiled(Tile { m, n, k, .. }) => write!(f, "tiled/{m}x{n}x{k}"),
            Self::Cooperative(tile) => write!(f, "cooperative/{tile}"),
        }
    }
}

pub(super) fn variants() -> Vec<Variant> {
    use DType::{F16, F32};
    let tiled: Vec<Kernel> = std::iter::once(Kernel::Direct).chain(Tile::ALL.map(Kernel::Tiled)).collect();
    let cooperative = CooperativeTile::ALL.map(Kernel::Cooperative);
    let mut variants = Vec::new();
    for dtypes in [[F32, F32, F32], [F16, F16, F16], [F16, F16, F32], [F32, F16, F32]] {
        let matrix_units = if dtypes[..2] == [F16; 2] { cooperative.as_slice() } else { &[] };
        for (&kernel, vectors) in
            tiled.iter().flat_map(|k| [(k, false), (k, true)]).chain(matrix_units.iter().map(|k| (k, true)))
        {
            for trans in [[false, false], [false, true], [true, false], [true, true]] {
                for &activation in Activation::ALL {
                    let (packs, splits, emulated) = ([false; 2], 1, false);
                    let plan = Plan { kernel, dtypes, trans, activation, vectors, packs, splits, emulated };
                    variants.push(plan.variant());
                }
            }
        }
    }
    variants
}

/// Whether every row of both factors starts at a multiple of four elements and has a multiple of four of them.
pub(super) fn reads_as_vectors(desc: &MatmulDesc, windows: &Windows) -> bool {
    let along_a = if desc.trans_a.is_transposed() { desc.m } else { desc.k };
    let along_b = if desc.trans_b.is_transposed() { desc.k } else { desc.n };
    is_aligned(&desc.a, windows.a.offset, along_a, 4) && is_aligned(&desc.b, windows.b.offset, along_b, 4)
}

/// Whether every row of a factor starts at a multiple of `width` elements and has a multiple of `width` of them.
pub(super) fn is_aligned(matrix: &Matrix, offset: u32, along_memory: usize, width: usize) -> bool {
    (offset as usize).is_multiple_of(width)
        && [matrix.ld, matrix.batch_stride, along_memory].iter().all(|size| size.is_multiple_of(width))
}

/// Workgroups that a device of this kind runs side by side, which wgpu doesn't tell: an H200's multiprocessors, and
/// what is usual for smaller ones.
pub(crate) fn multiprocessors(kind: DeviceKind) -> usize {
    match kind {
        DeviceKind::DiscreteGpu => 132,
        DeviceKind::IntegratedGpu | DeviceKind::VirtualGpu | DeviceKind::Other => 16,
        _ => 1,
    }
}
