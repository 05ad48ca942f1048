//! What a kernel for matrix products has to tell, and the list of the kernels by their shapes. The kernels' files import
//! this one, which imports none of them.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{Activation, DType};

use super::Windows;
use super::cost::Cost;
use super::layout::reads_as_vectors;
use super::plan::{Candidate, Plan, Problem};
use super::shapes::{Direct, Gemv, GemvDot, Outer, Skinny, SkinnyCooperative, Unstaged};
use super::strategy::Split;
use crate::device::Gpu;
use crate::kernels::Variant;
use crate::ops::shared::cooperative_tile::CooperativeTile;
use crate::ops::shared::tile::Tile;
use crate::recorder::Window;

/// What decides about the text of a kernel: the types and the layout of the operands, and how a result is
/// finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Signature {
    /// Types of A, B and C.
    pub(super) dtypes: [DType; 3],
    /// Whether A and B are stored transposed.
    pub(super) trans: [bool; 2],
    pub(super) activation: Activation,
    /// Whether operands are read by vectors.
    pub(super) vectors: bool,
    /// Whether results are written by vectors.
    pub(super) vector_results: bool,
    /// Whether single elements of a cooperative-matrix fragment are accessed.
    pub(super) element_access: bool,
}

impl Signature {
    /// The signature of products that are read and written element by element.
    pub(super) fn new(dtypes: [DType; 3], trans: [bool; 2], activation: Activation) -> Self {
        Self { dtypes, trans, activation, vectors: false, vector_results: false, element_access: false }
    }

    /// The signature of f16 operands that are read by vectors, with a result of f32.
    #[cfg(test)]
    pub(super) fn of_halves(trans: [bool; 2], element_access: bool) -> Self {
        let dtypes = [DType::F16, DType::F16, DType::F32];
        Self { vectors: true, element_access, ..Self::new(dtypes, trans, Activation::Identity) }
    }

    /// The signature of a product whose operands are read element by element.
    pub(super) fn of(desc: &MatmulDesc) -> Self {
        let dtypes = [desc.a.dtype, desc.b.dtype, desc.c.dtype];
        Self::new(dtypes, [desc.trans_a, desc.trans_b].map(|trans| trans.is_transposed()), desc.activation)
    }

    /// The signature of partial sums, which are neither rounded nor activated.
    pub(super) fn partial(self) -> Self {
        let [a, b, _] = self.dtypes;
        Self { dtypes: [a, b, DType::F32], activation: Activation::Identity, ..self }
    }
}

/// The types of A, B and C that kernels for any product have.
pub(super) const TYPES: [[DType; 3]; 5] = {
    use DType::{F16, F32};
    [[F32, F32, F32], [F16, F16, F16], [F16, F16, F32], [F32, F16, F32], [F16, F32, F32]]
};

/// Every signature of products of these types.
pub(super) fn signatures(types: &[[DType; 3]]) -> impl Iterator<Item = Signature> {
    let flags = [false, true];
    types.iter().flat_map(move |&dtypes| {
        Activation::ALL.iter().flat_map(move |&activation| {
            (0..8).map(move |bits| {
                let trans = [flags[bits & 1], flags[bits >> 1 & 1]];
                Signature { vectors: flags[bits >> 2 & 1], ..Signature::new(dtypes, trans, activation) }
            })
        })
    })
}

/// What each file of a kernel says of its shapes, that is the sizes of its tiles.
pub(super) trait Family: GemmKernel + Sized + 'static {
    /// The least that a candidate may cost.
    const LEAST: Cost;

    /// Every shape, as a [`KernelOverride`](super::KernelOverride) names it.
    fn shapes() -> impl Iterator<Item = Self>;

    /// The plans that may be the fastest for a product, with what they cost. None where kernels of other files are
    /// known to be faster than the costs would say; of those that cost the same, the preferred ones first.
    fn candidates(problem: &Problem<'_>) -> impl Iterator<Item = Candidate>;

    /// The variants of every shape.
    fn variants() -> Vec<Variant>;
}

/// A family, for a planner that knows none by its name.
pub(super) struct Offers {
    pub(super) least: Cost,
    /// Appends the candidates for a product.
    pub(super) offer: fn(&Problem<'_>, &mut Vec<Candidate>),
}

impl Offers {
    const fn of<F: Family>() -> Self {
        Self { least: F::LEAST, offer: |problem, offered| offered.extend(F::candidates(problem)) }
    }
}

/// What a kernel needs to make a product that [is possible](GemmKernel::is_possible).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    /// It has to pass its self-test on the device.
    pub(super) self_test: bool,
    /// It has no form that reads element by element.
    pub(super) vectors: bool,
}

/// A kernel with the sizes of its tile.
pub(super) trait GemmKernel: fmt::Display {
    /// Whether the kernel can make a product on a device, of operands prepared as it needs them.
    fn is_possible(&self, gpu: &Gpu, desc: &MatmulDesc) -> bool;

    /// The kernel as a product needs it, whatever of its operands' places in memory.
    fn for_product(&self, _: &Gpu, _: &MatmulDesc) -> Kernel {
        self.named()
    }

    /// Whether the kernel reads operands at these places by vectors.
    fn reads_as_vectors(&self, desc: &MatmulDesc, windows: &Windows) -> bool {
        reads_as_vectors(desc, windows, 4)
    }

    /// The kernel as operands at these places need it, with k split so, where they decide about more than
    /// [`reads_as_vectors`](Self::reads_as_vectors).
    fn for_operands(&self, _: &MatmulDesc, _: &Windows, _: Split) -> Option<Kernel> {
        None
    }

    /// The kernel without what belongs to a product, as a [`KernelOverride`](super::KernelOverride) names it.
    fn named(&self) -> Kernel;

    /// Conditions of the kernel besides [`is_possible`](Self::is_possible).
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// Whether the kernel reads operands that aren't aligned by shifted vectors, each of which has to be in its
    /// buffer as a whole.
    fn shifts_vectors(&self) -> bool {
        false
    }

    /// The plan with the copies of operands that the kernel is fastest with. None for kernels for small m or n, which
    /// read operands where they lie: copies would take longer than the product.
    fn packing(&self, _: Plan, _: &MatmulDesc, _: &Windows) -> Option<Plan> {
        None
    }

    /// Whether operands are copied in each of the ways in which tuning measures the kernel for a product, whose
    /// operands are aligned or not: none where it can't be the fastest.
    #[cfg(not(target_family = "wasm"))]
    fn measured_packings(&self, _: &MatmulDesc, aligned: bool) -> &'static [bool] {
        if aligned { &[false] } else { &[false, true] }
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

/// Lists the kernels in the order of the least that they cost, each with its shape and the name of its family.
macro_rules! kernels {
    ($($kernel:ident($shape:ty): $name:literal,)*) => {
        /// Every kernel for matrix products.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kernel {
            $($kernel($shape),)*
        }

        /// What each family offers, in the order of the least that it costs.
        pub(super) const FAMILIES: &[Offers] = &[$(Offers::of::<$shape>()),*];

        impl Kernel {
            /// Every kernel in every shape.
            pub(super) fn all() -> impl Iterator<Item = Self> {
                std::iter::empty()$(.chain(<$shape>::shapes().map(Self::$kernel)))*
            }

            /// The variants of every kernel.
            pub(super) fn variants() -> Vec<Variant> {
                [$(<$shape as Family>::variants()),*].concat()
            }

            /// The kernel's own answers.
            pub(super) fn implementation(&self) -> &dyn GemmKernel {
                match self {
                    $(Self::$kernel(kernel) => kernel,)*
                }
            }

            const fn family(&self) -> &'static str {
                match self {
                    $(Self::$kernel(_) => $name,)*
                }
            }
        }
    };
}

kernels! {
    Outer(Outer): "outer",
    Gemv(Gemv): "gemv",
    GemvDot(GemvDot): "gemv_dot",
    SkinnyCooperative(SkinnyCooperative): "skinny_cooperative",
    Skinny(Skinny): "skinny",
    Unstaged(Unstaged): "unstaged",
    Cooperative(CooperativeTile): "cooperative",
    Tiled(Tile): "tiled",
    Direct(Direct): "direct",
}

/// Such as `tiled/128x64x32`.
impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.family(), self.implementation())
    }
}

#[cfg(test)]
mod tests {
    use super::super::cost::Staged;
    use super::*;

    /// Otherwise a planner would stop before a family whose candidate costs less.
    #[test]
    fn families_stand_in_the_order_of_their_least_costs() {
        assert!(FAMILIES.is_sorted_by_key(|family| family.least));
        assert_eq!(FAMILIES[0].least, Cost::Traffic(Staged::Nothing));
    }
}
