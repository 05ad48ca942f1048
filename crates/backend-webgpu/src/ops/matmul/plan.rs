//! How a product is made: with which kernel, and what is done before and after it. Kernels make such plans of their own
//! as candidates; `choose.rs` chooses among them.

use backend_api::DeviceKind;
use backend_api::desc::MatmulDesc;

use super::cost::Cost;
use super::kernel::{GemmKernel, Kernel, Signature};
use super::pack::Prep;
use super::strategy::{self, Split, Strategy};
use super::{Windows, pack};
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
    pub(super) fn candidate(&self, kernel: Kernel, split: impl Into<Split>, cost: Cost) -> Option<Candidate> {
        let &Self { ctx, desc, windows } = self;
        let plan = Plan::new(ctx, desc, kernel, split)?.reading(desc, windows);
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
    /// The plan with a kernel, if it can make the product on this device, of operands that need no copies.
    pub(super) fn new(
        ctx: &OpContext,
        desc: &MatmulDesc,
        kernel: Kernel,
        split: impl Into<Split>,
    ) -> Option<Self> {
        let plan = Self::unchecked(ctx, desc, kernel, split.into());
        plan.implementation().is_possible(ctx.gpu(), desc).then_some(plan)
    }

    /// The plan with a kernel that can make the product on this device.
    pub(super) fn unchecked(ctx: &OpContext, desc: &MatmulDesc, kernel: Kernel, split: Split) -> Self {
        Self {
            kernel: kernel.implementation().for_product(ctx.gpu(), desc),
            signature: Signature { element_access: ctx.gpu().takes_spirv, ..Signature::of(desc) },
            prep: [Prep::AsIs; 2],
            strategy: match strategy::that_fit(ctx.device.limits.max_bytes, desc, split) {
                split if desc.batch == 1 && !split.is_whole() => Strategy::SplitK(split),
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
        let kernel = self.implementation().for_operands(desc, windows, self.split()).unwrap_or(self.kernel);
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

    /// The kernel for a part of each sum, which is neither rounded nor finished.
    pub(super) fn partial(&self) -> Self {
        Self { signature: self.signature.partial(), strategy: Strategy::Whole, ..*self }
    }

    /// How k is split.
    pub(super) fn split(&self) -> Split {
        self.strategy.split()
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
