//! Which kernel makes a product, and what is done before and after it: of all candidates, the one that costs the least.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{DType, DeviceKind, MathMode};

use super::cost::Cost;
use super::direct::Direct;
use super::kernel::{FAMILIES, GemmKernel, Kernel, Signature};
use super::pack::Prep;
use super::strategy::{self, Strategy};
use super::{KernelOverride, Windows, cooperative, edges, pack, self_test};
use crate::ops::op_context::OpContext;

/// A product to be planned: on a device, of operands in memory.
#[derive(Clone, Copy)]
pub(super) struct Problem<'a> {
    pub(super) ctx: &'a OpContext,
    pub(super) desc: &'a MatmulDesc,
    pub(super) windows: &'a Windows,
}

impl Problem<'_> {
    pub(super) fn compute_units(&self) -> usize {
        self.ctx.profile().compute_units
    }

    /// Whether the device is a CPU.
    pub(super) fn is_on_software(&self) -> bool {
        self.ctx.gpu().info.kind == DeviceKind::SoftwareAdapter
    }

    /// A candidate with a kernel, if that can make the product on this device, of operands as they lie in memory or
    /// of what copies the kernel needs.
    pub(super) fn candidate(&self, kernel: Kernel, splits: usize, cost: Cost) -> Option<Candidate> {
        let &Self { ctx, desc, windows } = self;
        let plan = Plan::new(ctx, desc, kernel, splits)?.reading(desc, windows);
        Some(Candidate { plan, cost })
    }
}

/// A plan that a kernel offers for a product.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) plan: Plan,
    pub(super) cost: Cost,
}

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
        let asked = ctx.state.matmul_override.get();
        let known = asked.or_else(|| ctx.state.tuning.get(desc, windows));
        Self::emulated(ctx, desc, asked)
            .or_else(|| Self::overridden(ctx, desc, windows, known?))
            .unwrap_or_else(|| Self::by_cost(&Problem { ctx, desc, windows }))
    }

    /// The plan of the candidate that costs the least of those whose kernels are verified, and of several such the first.
    /// Kernels are asked in the order of the least that they may cost, and no more of them than may cost less.
    pub(super) fn by_cost(problem: &Problem<'_>) -> Self {
        let mut offered: Vec<Candidate> = Vec::new();
        for (number, family) in FAMILIES.iter().enumerate() {
            (family.offer)(problem, &mut offered);
            let next = FAMILIES.get(number + 1).map(|next| next.least);
            while let Some(cheapest) = (0..offered.len()).min_by_key(|&i| offered[i].cost)
                && next.is_none_or(|least| offered[cheapest].cost < least)
            {
                if let Some(plan) = offered.remove(cheapest).plan.verified(problem.ctx) {
                    return plan;
                }
            }
        }
        Direct::plan(problem)
    }

    /// The plan with a certain kernel, if that can make the product.
    pub(super) fn overridden(
        ctx: &OpContext,
        desc: &MatmulDesc,
        windows: &Windows,
        KernelOverride { kernel, strategy, packed }: KernelOverride,
    ) -> Option<Self> {
        let plan = Self::new(ctx, desc, kernel, strategy.splits())?;
        let packing = if packed { plan.implementation().packing(plan, desc, windows) } else { None };
        let plan = packing.unwrap_or_else(|| plan.reading(desc, windows));
        let plan = if strategy == Strategy::PeelEdges { edges::peeled(ctx, desc, plan) } else { plan };
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
            signature: Signature { element_access: ctx.gpu().takes_spirv, ..Signature::of(desc) },
            prep: [Prep::AsIs; 2],
            strategy: match strategy::that_fit(ctx.device.limits.max_bytes, desc, splits) {
                splits if desc.batch == 1 && splits > 1 => Strategy::SplitK(splits),
                _ => Strategy::Whole,
            },
        }
    }

    /// The plan for operands as they lie in memory, or if the kernel can't read them there, for copies.
    pub(super) fn reading(self, desc: &MatmulDesc, windows: &Windows) -> Self {
        if self.implementation().shifts_vectors() && !pack::has_whole_vectors(desc, windows) {
            return self.packing(desc, windows);
        }
        let vectors = self.implementation().reads_as_vectors(desc, windows);
        let kernel = self.implementation().for_operands(desc, windows, self.splits()).unwrap_or(self.kernel);
        Self { kernel, signature: Signature { vectors, ..self.signature }, ..self }
    }

    /// The plan for copies of operands that aren't aligned.
    pub(super) fn packing(self, desc: &MatmulDesc, windows: &Windows) -> Self {
        self.aligned(pack::needed(desc, windows))
    }

    /// The plan for operands that are aligned when they are prepared so.
    pub(super) fn aligned(self, prep: [Prep; 2]) -> Self {
        Self { prep, signature: Signature { vectors: true, ..self.signature }, ..self }
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
                Self::new(ctx, &parts, kernel, strategy.splits())?.aligned([Prep::AsIs; 2])
            }
            _ => cooperative::in_cheapest_tile(ctx, &parts, [Prep::AsIs; 2])?.0,
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
        f.write_str(match self.implementation().shifts_vectors() {
            _ if self.signature.vectors => "",
            true => ", shifted",
            false => ", element by element",
        })
    }
}
