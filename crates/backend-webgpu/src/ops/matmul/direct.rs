//! gemm/direct, which stages nothing in workgroup memory: for CPUs, which have none, and for sums over
//! nothing.

use std::fmt;

use backend_api::Activation;
use backend_api::desc::MatmulDesc;

use super::cost::Cost;
use super::kernel::{Family, GemmKernel, Kernel, Signature, TYPES, signatures};
use super::plan::{Candidate, Plan, Problem};
use super::shapes::Direct;
use super::strategy::Split;
use super::{Params, Windows, activation_libs};
use crate::device::Gpu;
use crate::kernels::{KernelSource, Variant, constants, kernel};
use crate::recorder::Window;

constants! { struct Constants { vec: bool, trans_a: bool, trans_b: bool, activation: Activation } }

static DIRECT: KernelSource = kernel!(
    "gemm/direct", libs: [GRID, MATMUL, C_ELEMENTS],
    types: ["TA", "TB", "TC"], constants: Constants, params: Params,
    reads: ["a: TA", "a4: vec4<TA>", "b: TB", "b4: vec4<TB>", "bias: TC"], writes: ["c: TC"],
);

/// Rows and columns of a workgroup.
const TILE: [usize; 2] = [32, 128];

impl Direct {
    /// The plan for any product on any device.
    pub(super) fn plan(&Problem { ctx, desc, windows }: &Problem<'_>) -> Plan {
        Plan::unchecked(ctx, desc, Kernel::Direct(Self), Split::WHOLE)
            .reading(desc, windows)
            .packing_if_long(desc, windows)
    }
}

impl Family for Direct {
    const LEAST: Cost = Cost::Unbounded;

    fn shapes() -> impl Iterator<Item = Self> {
        std::iter::once(Self)
    }

    fn candidates(problem: &Problem<'_>) -> impl Iterator<Item = Candidate> {
        std::iter::once(Candidate { plan: Self::plan(problem), cost: Self::LEAST })
    }

    fn variants() -> Vec<Variant> {
        signatures(&TYPES).map(|signature| Self.variant(&signature)).collect()
    }
}

impl GemmKernel for Direct {
    fn is_possible(&self, _: &Gpu, _: &MatmulDesc) -> bool {
        true
    }

    fn named(&self) -> Kernel {
        Kernel::Direct(*self)
    }

    fn packing(&self, plan: Plan, desc: &MatmulDesc, windows: &Windows) -> Option<Plan> {
        Some(plan.packing(desc, windows))
    }

    fn tile(&self, _: &Signature) -> [usize; 2] {
        TILE
    }

    fn inputs<'a>(&self, Windows { a, b, bias, .. }: &'a Windows) -> Vec<&'a Window> {
        vec![a, a, b, b, bias]
    }

    fn variant(&self, signature: &Signature) -> Variant {
        let &Signature { vectors: vec, trans: [trans_a, trans_b], activation, .. } = signature;
        let constants = Constants { vec, trans_a, trans_b, activation };
        Variant::new(&DIRECT, signature.dtypes, constants).with_libs(activation_libs(signature.dtypes[2]))
    }
}

/// Such as `32x128x4`: rows, columns and depth.
impl fmt::Display for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x4", TILE[0], TILE[1])
    }
}
