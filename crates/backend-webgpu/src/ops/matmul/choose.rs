//! The choice of a plan: of all candidates, the one that costs the least.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{DType, MathMode};

use super::kernel::{FAMILIES, Kernel};
use super::pack::Prep;
use super::plan::{Candidate, Plan, Problem};
use super::plan_cache::PlanCache;
use super::shapes::Direct;
use super::strategy::{self, Strategy};
use super::tuning::Tuning;
use super::{KernelOverride, Windows, cooperative, edges, emulated, tiled};
use crate::ops::op_context::OpContext;

/// A plan that was chosen by its cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) plan: Plan,
    /// Whether no cheaper candidate was passed over, as one is while its kernel's self-test has no result.
    pub(super) is_cheapest: bool,
}

impl Plan {
    /// The plan for a product: with the kernel that is asked for, with the one that was measured to be the
    /// fastest, or with the one that is estimated to be.
    pub(super) fn choose(ctx: &OpContext, desc: &MatmulDesc, windows: &Windows) -> Self {
        let asked = ctx.state.forced();
        let known = asked.or_else(|| Tuning::of(&ctx.state).get(desc, windows));
        Self::emulated(&Problem { ctx, desc, windows }, asked)
            .or_else(|| Self::overridden(ctx, desc, windows, known?))
            .unwrap_or_else(|| Self::cached_or_by_cost(&Problem { ctx, desc, windows }))
    }

    /// The cached plan for such a product, or [`by_cost`](Self::by_cost).
    fn cached_or_by_cost(problem: &Problem<'_>) -> Self {
        let &Problem { ctx, .. } = problem;
        // A dry run that takes untested variants for right notes which they are.
        if ctx.takes_untested() {
            return Self::by_cost(problem).plan;
        }
        ctx.state.of::<PlanCache>().get_or_choose(problem, || Self::by_cost(problem))
    }

    /// The plan of the candidate that costs the least of those whose kernels are verified, and of several such the first.
    /// Kernels are asked in the order of the least that they may cost, and no more of them than may cost less.
    pub(super) fn by_cost(problem: &Problem<'_>) -> Choice {
        let mut offered: Vec<Candidate> = Vec::new();
        let mut is_cheapest = true;
        for (number, family) in FAMILIES.iter().enumerate() {
            (family.offer)(problem, &mut offered);
            let next = FAMILIES.get(number + 1).map(|next| next.least);
            while let Some(cheapest) = (0..offered.len()).min_by_key(|&i| offered[i].cost)
                && next.is_none_or(|least| offered[cheapest].cost < least)
            {
                let offer = offered.remove(cheapest).plan;
                let verified = offer.verified(problem.ctx);
                is_cheapest &= verified == Some(offer);
                if let Some(plan) = verified {
                    return Choice { plan, is_cheapest };
                }
            }
        }
        Choice { plan: Direct::plan(problem), is_cheapest }
    }

    /// The plan with a certain kernel, if that can make the product.
    pub(super) fn overridden(
        ctx: &OpContext,
        desc: &MatmulDesc,
        windows: &Windows,
        KernelOverride { kernel, strategy, packed }: KernelOverride,
    ) -> Option<Self> {
        let plan = Self::new(ctx, desc, kernel, strategy.split())?;
        let packing = if packed { plan.implementation().packing(plan, desc, windows) } else { None };
        let plan = packing.unwrap_or_else(|| plan.reading(desc, windows));
        let plan = if strategy == Strategy::PeelEdges { edges::peeled(ctx, desc, plan) } else { plan };
        plan.verified(ctx)
    }

    /// What would make [`choose`](Self::choose) choose the plan again.
    pub(super) fn as_override(&self) -> KernelOverride {
        let packed = self.prep != [Prep::AsIs; 2];
        let strategy = match self.strategy {
            Strategy::Emulated(split) if split.is_whole() => Strategy::Whole,
            Strategy::Emulated(split) => Strategy::SplitK(split),
            strategy => strategy,
        };
        KernelOverride { kernel: self.implementation().named(), strategy, packed }
    }

    /// An f32 product on tensor cores, if that is allowed and worth it.
    fn emulated(problem: &Problem<'_>, asked: Option<KernelOverride>) -> Option<Self> {
        let &Problem { ctx, desc, .. } = problem;
        if cfg!(target_family = "wasm")
            || desc.math != MathMode::EmulatedF32
            || desc.batch != 1
            || [desc.a.dtype, desc.b.dtype] != [DType::F32; 2]
            || !strategy::parts_fit(ctx.device.limits.max_bytes, desc)
        {
            return None;
        }
        let parts = strategy::product_of_parts(desc);
        let plan = match asked {
            Some(KernelOverride { kernel: kernel @ Kernel::Cooperative(_), strategy, .. }) => {
                Self::new(ctx, &parts, kernel, strategy.split())?.aligned([Prep::AsIs; 2])
            }
            Some(_) => cooperative::in_cheapest_tile(ctx, &parts, [Prep::AsIs; 2])?.0,
            None => Self::of_parts_if_faster(problem, &parts)?,
        };
        Self { strategy: Strategy::Emulated(plan.split()), ..plan }.verified(ctx)
    }

    /// The plan for the product of the parts of f32 operands, if that is estimated to take less than the product in
    /// registers.
    fn of_parts_if_faster(problem: &Problem<'_>, parts: &MatmulDesc) -> Option<Self> {
        let &Problem { ctx, desc, .. } = problem;
        // Short sums wait for C to be written, not for products.
        if desc.k < 2 * strategy::STEP {
            return None;
        }
        let (plan, time) = cooperative::in_cheapest_tile(ctx, parts, [Prep::AsIs; 2])?;
        // Partial sums take longer than the estimate, which is for short ones.
        let time = if !plan.split().is_whole() { time.saturating_mul(5) / 4 } else { time };
        let time = emulated::time(desc, time, problem.compute_units());
        (time < tiled::time(problem)?).then_some(plan)
    }
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
