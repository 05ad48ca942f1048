//! Which kernel makes a product, and what is done before and after it.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{DType, MathMode};

use super::cooperative;
use super::direct::Direct;
use super::gemv::Gemv;
use super::gemv_dot::GemvDot;
use super::kernel::{GemmKernel, Kernel, Signature};
use super::outer::Outer;
use super::pack::Prep;
use super::skinny::Skinny;
use super::skinny_cooperative::SkinnyCooperative;
use super::strategy::{self, Strategy};
use super::unstaged::Unstaged;
use super::{KernelOverride, Windows, pack, self_test, tiled};
use crate::ops::op_context::OpContext;

/// How a product is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) kernel: Kernel,
    pub(super) signature: Signature,
    /// How A and B are prepared.
    pub(super) prep: [Prep; 2],
    pub(super) strategy: Strategy,
}

impl Plan {
    /// The plan for a product: with the kernel that is asked for, with the one that was measured to be the
    /// fastest, or with the one that is estimated to be.
    pub(super) fn choose(ctx: &OpContext, desc: &MatmulDesc, windows: &Windows) -> Self {
        let asked = *ctx.state.matmul_override.lock();
        let known = asked.or_else(|| ctx.state.tuning.get(desc, windows));
        Self::emulated(ctx, desc, asked)
            .or_else(|| Self::overridden(ctx, desc, windows, known?))
            .unwrap_or_else(|| Self::by_estimate(ctx, desc, windows))
    }

    /// The plan that is estimated to be the fastest: the first kernel that has a candidate, those for small m
    /// or n first, which have none where a larger tile would be faster.
    pub(super) fn by_estimate(ctx: &OpContext, desc: &MatmulDesc, windows: &Windows) -> Self {
        Outer::candidate(ctx, desc, windows)
            .or_else(|| Gemv::candidate(ctx, desc, windows))
            .or_else(|| GemvDot::candidate(ctx, desc, windows))
            .or_else(|| SkinnyCooperative::candidate(ctx, desc, windows))
            .or_else(|| Skinny::candidate_beside_tensor_cores(ctx, desc, windows))
            .or_else(|| Unstaged::candidate(ctx, desc, windows))
            .or_else(|| cooperative::candidate(ctx, desc, windows))
            .or_else(|| Skinny::candidate(ctx, desc, windows))
            .or_else(|| tiled::candidate(ctx, desc, windows))
            .unwrap_or_else(|| Direct::candidate(ctx, desc, windows))
    }

    /// The plan with a certain kernel, if that can make the product.
    pub(super) fn overridden(
        ctx: &OpContext,
        desc: &MatmulDesc,
        windows: &Windows,
        KernelOverride { kernel, strategy, packed }: KernelOverride,
    ) -> Option<Self> {
        let plan = Self::new(ctx, desc, kernel, strategy.splits())?;
        let plan = match kernel {
            Kernel::Cooperative(_) if packed => cooperative::packing(plan, desc, windows),
            Kernel::Direct(_) | Kernel::Tiled(_) if packed => plan.packing(desc, windows),
            // Kernels for small m or n read operands where they lie: copies would take longer than the
            // product.
            _ => plan.reading(desc, windows),
        };
        let plan = if strategy == Strategy::PeelEdges { super::edges::peeled(ctx, desc, plan) } else { plan };
        plan.verified(ctx)
    }

    /// What would make [`choose`](Self::choose) choose the plan again.
    pub(super) fn as_override(&self) -> KernelOverride {
        let packed = self.prep != [Prep::AsIs; 2];
        let strategy = match self.strategy {
            Strategy::Emulated(1) => Strategy::Whole,
            Strategy::Emulated(splits) => Strategy::SplitK(splits),
            strategy => strategy,
        };
        KernelOverride { kernel: self.implementation().named(), strategy, packed }
    }

    /// The plan if its kernel is verified on this device, without access to the elements of fragments where
    /// only that fails.
    pub(super) fn verified(self, ctx: &OpContext) -> Option<Self> {
        let without_access = Signature { element_access: false, ..self.signature };
        let plainer = Self { signature: without_access, ..self };
        [self, plainer].into_iter().find(|plan| plan.is_verified(ctx))
    }

    fn is_verified(&self, ctx: &OpContext) -> bool {
        let kernel = self.implementation();
        (self.signature.vectors || !kernel.needs_vectors())
            && (!kernel.needs_self_test() || self_test::passes(ctx, self))
    }

    /// The plan with a kernel, if it can make the product on this device, of operands that need no copies.
    pub(super) fn new(ctx: &OpContext, desc: &MatmulDesc, kernel: Kernel, splits: usize) -> Option<Self> {
        let plan = Self::unchecked(ctx, desc, kernel, splits);
        plan.implementation().is_possible(ctx.gpu(), desc).then_some(plan)
    }

    /// The plan with a kernel that can make the product on this device.
    pub(super) fn unchecked(ctx: &OpContext, desc: &MatmulDesc, kernel: Kernel, splits: usize) -> Self {
        Self {
            kernel: kernel.implementation().for_product(ctx.gpu(), desc),
            signature: Signature {
                // Where operands aren't aligned, plans say so.
                vectors: matches!(kernel, Kernel::Cooperative(_)),
                element_access: ctx.gpu().takes_spirv,
                ..Signature::of(desc)
            },
            prep: [Prep::AsIs; 2],
            strategy: match strategy::that_fit(ctx.device.limits.max_bytes, desc, splits) {
                splits if desc.batch == 1 && splits > 1 => Strategy::SplitK(splits),
                _ => Strategy::Whole,
            },
        }
    }

    /// The plan with a kernel, if it can make the product on this device, of operands as they lie in memory
    /// or of what copies the kernel needs.
    pub(super) fn with_kernel(
        ctx: &OpContext,
        desc: &MatmulDesc,
        windows: &Windows,
        kernel: Kernel,
        splits: usize,
    ) -> Option<Self> {
        Some(Self::new(ctx, desc, kernel, splits)?.reading(desc, windows))
    }

    /// The plan for operands as they lie in memory, or if tensor cores can't read them there, for copies.
    pub(super) fn reading(self, desc: &MatmulDesc, windows: &Windows) -> Self {
        if matches!(self.kernel, Kernel::Cooperative(_)) && !pack::has_whole_vectors(desc, windows) {
            return self.packing(desc, windows);
        }
        let (kernel, vectors) = self.implementation().for_operands(desc, windows, self.splits());
        Self { kernel, signature: Signature { vectors, ..self.signature }, ..self }
    }

    /// The plan for copies of operands that aren't aligned.
    pub(super) fn packing(self, desc: &MatmulDesc, windows: &Windows) -> Self {
        let signature = Signature { vectors: true, ..self.signature };
        Self { prep: pack::needed(desc, windows), signature, ..self }
    }

    /// The plan with copies where reading element by element, which costs a tenth of a long product, takes
    /// longer.
    pub(super) fn packing_if_long(self, desc: &MatmulDesc, windows: &Windows) -> Self {
        if is_long(desc) && !self.signature.vectors { self.packing(desc, windows) } else { self }
    }

    /// The plan with a copy of B that isn't transposed, where B is and can be copied so.
    pub(super) fn transposing_b(self, desc: &MatmulDesc) -> Self {
        if self.prep[1] == Prep::Pack || pack::transposing_b(desc).is_none() {
            return self;
        }
        let trans = [self.signature.trans[0], false];
        let prep = [self.prep[0], Prep::Transpose];
        Self { prep, signature: Signature { trans, ..self.signature }, ..self }
    }

    /// An f32 product on tensor cores, if that is allowed and worth it.
    fn emulated(ctx: &OpContext, desc: &MatmulDesc, asked: Option<KernelOverride>) -> Option<Self> {
        if cfg!(target_family = "wasm")
            || desc.math != MathMode::EmulatedF32
            || desc.batch != 1
            || desc.b.dtype != DType::F32
        {
            return None;
        }
        let parts = strategy::product_of_parts(desc);
        let plan = match asked {
            Some(KernelOverride { kernel: kernel @ Kernel::Cooperative(_), strategy, .. }) => {
                Self::new(ctx, &parts, kernel, strategy.splits())?
            }
            _ => cooperative::in_cheapest_tile(ctx, &parts, [Prep::AsIs; 2])?,
        };
        Self { strategy: Strategy::Emulated(plan.splits()), ..plan }.verified(ctx)
    }

    /// The kernel for a part of each sum, which is neither rounded nor finished.
    pub(super) fn partial(&self) -> Self {
        Self { signature: self.signature.partial(), strategy: Strategy::Whole, ..*self }
    }

    /// Into how many pieces k is split.
    pub(super) fn splits(&self) -> usize {
        self.strategy.splits()
    }

    /// The kernel's own answers.
    pub(super) fn implementation(&self) -> &dyn GemmKernel {
        self.kernel.implementation()
    }

    /// Rows and columns of a tile.
    pub(super) fn tile(&self) -> [usize; 2] {
        self.implementation().tile(&self.signature)
    }
}

/// Whether copies of badly aligned operands take less than reading them element by element costs.
pub(super) fn is_long(&MatmulDesc { m, n, k, .. }: &MatmulDesc) -> bool {
    m.min(n) >= 256 && m.saturating_mul(n).saturating_mul(k) >= 1 << 31
}

/// A tile, into how many splits k is divided, and the nanoseconds that a product is estimated to take so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Estimate<T> {
    pub(super) tile: T,
    pub(super) splits: usize,
    pub(super) time: usize,
}

/// The nanoseconds that writing and adding partial sums takes, of so many results in so many splits, on so many
/// compute units.
pub(super) type Combining = fn(usize, usize, usize) -> usize;

/// The tile and the number of splits that are estimated to take the least time. `time` estimates that of a
/// tile for m, n, k and the number of products, `combining` that of m·n results and their splits on the device's
/// compute units.
pub(super) fn cheapest<T: Copy>(
    desc: &MatmulDesc,
    tiles: impl Iterator<Item = T>,
    (combining, compute_units): (Combining, usize),
    time: impl Fn(T, [usize; 4]) -> usize,
) -> Option<Estimate<T>> {
    /// Nanoseconds in which workgroups begin and end, which matter where their part of k is short.
    const SHORT: usize = 1500;
    let &MatmulDesc { m, n, k, batch, .. } = desc;
    let choices = tiles.flat_map(|tile| {
        let splits = [1, 2, 4, 8, 16, 32].into_iter();
        splits
            .filter(move |&splits| splits == 1 || batch == 1 && k / splits >= strategy::STEP)
            .map(move |splits| (tile, splits))
    });
    let estimates = choices.map(|(tile, splits)| {
        if splits == 1 {
            return Estimate { tile, splits, time: time(tile, [m, n, k, batch]) };
        }
        let (length, count) = strategy::length_and_count(k, splits);
        let short = if length < 256 { SHORT } else { 0 };
        let combining = combining(m.saturating_mul(n), count, compute_units).saturating_add(short);
        Estimate { tile, splits, time: time(tile, [m, n, length, count]).saturating_add(combining) }
    });
    estimates.min_by_key(|estimate| estimate.time)
}

/// Such as `cooperative/128x128x32+split4, packs A`: what [`KernelOverride`] reads, and what else there is to
/// know.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Strategy::Emulated(_) = self.strategy {
            f.write_str("emulated on ")?;
        }
        write!(f, "{}", self.as_override())?;
        match self.prep.map(|prep| prep == Prep::Pack) {
            [false, false] => {}
            [true, false] => f.write_str(", packs A")?,
            [false, true] => f.write_str(", packs B")?,
            [true, true] => f.write_str(", packs A and B")?,
        }
        match self.kernel {
            _ if self.signature.vectors => {}
            Kernel::Cooperative(_) => f.write_str(", shifted")?,
            _ => f.write_str(", element by element")?,
        }
        Ok(())
    }
}
