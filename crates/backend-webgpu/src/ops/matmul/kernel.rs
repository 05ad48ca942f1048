//! What a kernel for matrix products has to tell, and the list of the kernels.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{Activation, DType};

use super::direct::Direct;
use super::gemv::Gemv;
use super::gemv_dot::GemvDot;
use super::outer::Outer;
use super::skinny::Skinny;
use super::skinny_cooperative::SkinnyCooperative;
use super::unstaged::Unstaged;
use super::{Windows, tiled};
use crate::device::Gpu;
use crate::kernels::Variant;
use crate::ops::shared::cooperative_tile::CooperativeTile;
use crate::ops::shared::tile::Tile;
use crate::recorder::Window;

/// What decides about the text of a kernel: the types and the layout of the operands, and how a result is
/// finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signature {
    /// Types of A, B and C.
    pub(super) dtypes: [DType; 3],
    /// Whether A and B are stored transposed.
    pub(super) trans: [bool; 2],
    pub(super) activation: Activation,
    /// Whether operands are read by vectors.
    pub(super) vectors: bool,
    /// Whether single elements of a cooperative-matrix fragment are accessed.
    pub(super) element_access: bool,
}

impl Signature {
    /// The signature of a product whose operands are read element by element.
    pub(super) fn of(desc: &MatmulDesc) -> Self {
        Self {
            dtypes: [desc.a.dtype, desc.b.dtype, desc.c.dtype],
            trans: [desc.trans_a.is_transposed(), desc.trans_b.is_transposed()],
            activation: desc.activation,
            vectors: false,
            element_access: false,
        }
    }

    /// The signature of partial sums, which are neither rounded nor activated.
    pub(super) fn partial(self) -> Self {
        let [a, b, _] = self.dtypes;
        Self { dtypes: [a, b, DType::F32], activation: Activation::Identity, ..self }
    }
}

/// The types of A, B and C that kernels for any product have.
pub(super) const TYPES: [[DType; 3]; 4] = {
    use DType::{F16, F32};
    [[F32, F32, F32], [F16, F16, F16], [F16, F16, F32], [F32, F16, F32]]
};

/// Every signature of products of these types.
pub(super) fn signatures(types: &[[DType; 3]]) -> impl Iterator<Item = Signature> {
    let flags = [false, true];
    types.iter().flat_map(move |&dtypes| {
        Activation::ALL.iter().flat_map(move |&activation| {
            (0..8).map(move |bits| Signature {
                dtypes,
                trans: [flags[bits & 1], flags[bits >> 1 & 1]],
                activation,
                vectors: flags[bits >> 2 & 1],
                element_access: false,
            })
        })
    })
}

/// A kernel with the sizes of its tile. Each file of a kernel implements this, and says by a `candidate`
/// function for which products it should be the fastest.
pub(super) trait GemmKernel: fmt::Display {
    /// Whether the kernel can make a product on a device, of operands prepared as it needs them.
    fn is_possible(&self, gpu: &Gpu, desc: &MatmulDesc) -> bool;

    /// The kernel as a product needs it, whatever of its operands' places in memory.
    fn for_product(&self, _: &Gpu, _: &MatmulDesc) -> Kernel {
        self.named()
    }

    /// The kernel as operands at these places need it, with k in so many splits, and whether it reads them by
    /// vectors.
    fn for_operands(&self, desc: &MatmulDesc, windows: &Windows, splits: usize) -> (Kernel, bool);

    /// The kernel without what belongs to a product, as a [`KernelOverride`](super::KernelOverride) names it.
    fn named(&self) -> Kernel;

    /// Whether the kernel has to pass its self-test on a device.
    fn needs_self_test(&self) -> bool {
        false
    }

    /// Whether the kernel has no form that reads element by element.
    fn needs_vectors(&self) -> bool {
        false
    }

    /// Whether the kernel makes the transposed product, which has few rows instead of few columns.
    fn is_transposed(&self) -> bool {
        false
    }

    /// Rows and columns of a workgroup's tile, of C as it is stored.
    fn tile(&self, signature: &Signature) -> [usize; 2];

    /// How many such tiles a workgroup makes.
    fn tiles_of_a_workgroup(&self) -> usize {
        1
    }

    /// Elements along k that a workgroup takes at once.
    fn k_block(&self) -> usize {
        64
    }

    /// What the kernel reads, in the order of its bindings. C follows.
    fn inputs<'a>(&self, windows: &'a Windows) -> Vec<&'a Window> {
        let Windows { a, b, bias, .. } = windows;
        if self.is_transposed() { vec![b, a, bias] } else { vec![a, b, bias] }
    }

    fn variant(&self, signature: &Signature) -> Variant;
}

/// Every kernel for matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    Direct(Direct),
    Tiled(Tile),
    Cooperative(CooperativeTile),
    Skinny(Skinny),
    Gemv(Gemv),
    GemvDot(GemvDot),
    SkinnyCooperative(SkinnyCooperative),
    Unstaged(Unstaged),
    Outer(Outer),
}

impl Kernel {
    /// Every kernel in every tile.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let tiled = tiled::tiles().map(Self::Tiled);
        let cooperative = CooperativeTile::all().map(Self::Cooperative);
        let skinny = Skinny::ALL.into_iter().map(Self::Skinny);
        let gemv = Gemv::ALL.into_iter().map(Self::Gemv);
        let gemv_dot = GemvDot::ALL.into_iter().map(Self::GemvDot);
        let skinny_cooperative = SkinnyCooperative::ALL.into_iter().map(Self::SkinnyCooperative);
        let unstaged = Unstaged::ALL.into_iter().map(Self::Unstaged);
        let small_m = skinny.chain(gemv).chain(gemv_dot).chain(skinny_cooperative).chain(unstaged);
        let outer = Outer::ALL.into_iter().map(Self::Outer);
        std::iter::once(Self::Direct(Direct)).chain(tiled).chain(cooperative).chain(small_m).chain(outer)
    }

    /// The kernel's own answers.
    pub(super) fn implementation(&self) -> &dyn GemmKernel {
        match self {
            Self::Direct(kernel) => kernel,
            Self::Tiled(kernel) => kernel,
            Self::Cooperative(kernel) => kernel,
            Self::Skinny(kernel) => kernel,
            Self::Gemv(kernel) => kernel,
            Self::GemvDot(kernel) => kernel,
            Self::SkinnyCooperative(kernel) => kernel,
            Self::Unstaged(kernel) => kernel,
            Self::Outer(kernel) => kernel,
        }
    }
}

/// Such as `tiled/128x64x32`.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self {
            Self::Direct(_) => "direct",
            Self::Tiled(_) => "tiled",
            Self::Cooperative(_) => "cooperative",
            Self::Skinny(_) => "skinny",
            Self::Gemv(_) => "gemv",
            Self::GemvDot(_) => "gemv_dot",
            Self::SkinnyCooperative(_) => "skinny_cooperative",
            Self::Unstaged(_) => "unstaged",
            Self::Outer(_) => "outer",
        };
        write!(f, "{family}/{}", self.implementation())
    }
}
