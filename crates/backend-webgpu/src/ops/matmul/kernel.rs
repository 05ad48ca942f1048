//! The kernels that make products, and what they are bound to for one.

use std::fmt;

use backend_api::desc::MatmulDesc;
use backend_api::{Activation, DType};

use super::cooperative::CooperativeTile;
use super::gemv::Gemv;
use super::gemv_dot::GemvDot;
use super::plan::Plan;
use super::skinny::Skinny;
use super::skinny_cooperative::SkinnyCooperative;
use super::{Params, Windows, activation_code, activation_libs, fragments};
use crate::kernels::libs::{
    ACTIVATE, ACTIVATE_HALF, FRAGMENT_ELEMENTS, HALF, RESULTS_IN_REGISTERS, RESULTS_STAGED, SHIFTED_VECTOR,
};
use crate::kernels::{KernelSource, Lib, Variant, kernel, native};
use crate::ops::tile::{TILE_CONSTANTS, Tile, tile_product};
use crate::recorder::Window;

static TILED: KernelSource = KernelSource {
    unrolled: Some(tile_product),
    ..kernel!(
        "gemm/tiled",
        libs: [GRID, SPECIAL, UNARY, MATMUL, OPERAND_BLOCKS, TILE_PRODUCT],
        types: ["TA", "TB", "TC"],
        constants: with_tile(["VEC", "TRANS_A", "TRANS_B", "ACTIVATION"]),
        reads: 5,
        writes: 1,
        params: Params,
    )
};

static DIRECT: KernelSource = kernel!(
    "gemm/direct",
    libs: [GRID, SPECIAL, UNARY, MATMUL],
    types: ["TA", "TB", "TC"],
    constants: ["VEC", "TRANS_A", "TRANS_B", "ACTIVATION"],
    reads: 5,
    writes: 1,
    params: Params,
);

/// Rows and columns of a workgroup of `gemm/direct`.
pub(super) const DIRECT_TILE: [usize; 2] = [32, 128];

static COOPERATIVE: KernelSource = KernelSource {
    unrolled: native(fragments::product),
    cooperative: true,
    subgroups: true,
    ..kernel!(
        native "gemm/cooperative",
        libs: [GRID, SPECIAL, UNARY, MATMUL, FRAGMENTS],
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
            "IN_REGISTERS",
        ],
        reads: 3,
        writes: 3,
        params: Params,
    )
};

/// The names of a tile's constants, followed by others.
const fn with_tile(rest: [&'static str; 4]) -> [&'static str; 9] {
    let [m, n, k, thread_m, thread_n] = TILE_CONSTANTS;
    let [vectors, trans_a, trans_b, activation] = rest;
    [m, n, k, thread_m, thread_n, vectors, trans_a, trans_b, activation]
}

/// A kernel with the size of its tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    Direct,
    Tiled(Tile),
    Cooperative(CooperativeTile),
    Skinny(Skinny),
    Gemv(Gemv),
    GemvDot(GemvDot),
    SkinnyCooperative(SkinnyCooperative),
}

impl Kernel {
    /// Every kernel in every tile.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let tiled = Tile::ALL.into_iter().map(Self::Tiled);
        let cooperative = CooperativeTile::all().map(Self::Cooperative);
        let skinny = Skinny::ALL.into_iter().map(Self::Skinny);
        let gemv = Gemv::ALL.into_iter().map(Self::Gemv);
        let dots = GemvDot::ALL.into_iter().map(Self::GemvDot);
        let skinny_cooperative = SkinnyCooperative::ALL.into_iter().map(Self::SkinnyCooperative);
        let few = skinny.chain(gemv).chain(dots).chain(skinny_cooperative);
        std::iter::once(Self::Direct).chain(tiled).chain(cooperative).chain(few)
    }

    /// The kernel as it is made for a product.
    pub(super) fn fitting(self, desc: &MatmulDesc) -> Self {
        match self {
            Self::Skinny(skinny) => Self::Skinny(skinny.fitting(desc)),
            Self::Gemv(gemv) => Self::Gemv(gemv.fitting(desc)),
            Self::GemvDot(dots) => Self::GemvDot(dots.fitting(desc)),
            Self::SkinnyCooperative(dots) => Self::SkinnyCooperative(dots.fitting(desc)),
            _ => self,
        }
    }

    /// The kernel as it is named, for any product.
    pub(super) fn named(self) -> Self {
        match self {
            Self::Skinny(skinny) => Self::Skinny(skinny.named()),
            Self::Gemv(gemv) => Self::Gemv(gemv.named()),
            Self::GemvDot(dots) => Self::GemvDot(dots.named()),
            Self::SkinnyCooperative(dots) => Self::SkinnyCooperative(dots.named()),
            _ => self,
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => write!(f, "direct/{}x{}x4", DIRECT_TILE[0], DIRECT_TILE[1]),
            Self::Tiled(tile) => write!(f, "tiled/{tile}"),
            Self::Cooperative(tile) => write!(f, "cooperative/{tile}"),
            Self::Skinny(skinny) => write!(f, "skinny/{skinny}"),
            Self::Gemv(gemv) => write!(f, "gemv/{gemv}"),
            Self::GemvDot(dots) => write!(f, "gemv_dot/{dots}"),
            Self::SkinnyCooperative(dots) => write!(f, "skinny_cooperative/{dots}"),
        }
    }
}

impl Plan {
    /// Rows and columns of a tile.
    pub(super) fn tile(&self) -> [usize; 2] {
        match self.kernel {
            Kernel::Direct => DIRECT_TILE,
            Kernel::Tiled(tile) => [tile.m, tile.n],
            Kernel::Cooperative(tile) => [tile.m, tile.n],
            Kernel::Skinny(skinny) => skinny.tile(self.dtypes, self.trans, self.vectors),
            Kernel::Gemv(gemv) => gemv.tile(self.dtypes, self.trans, self.vectors),
            Kernel::GemvDot(dots) => dots.tile(),
            Kernel::SkinnyCooperative(dots) => dots.tile(),
        }
    }

    /// What the kernel reads, in the order of its bindings. C follows; `gemm/cooperative` binds it three
    /// times.
    pub(super) fn inputs<'a>(&self, windows: &'a Windows) -> Vec<&'a Window> {
        let Windows { a, b, bias, c } = windows;
        match self.kernel {
            Kernel::Direct | Kernel::Tiled(_) => vec![a, a, b, b, bias],
            Kernel::Cooperative(_) => vec![a, b, bias, c, c],
            Kernel::Skinny(_) if self.transposed() => vec![b, b, a, bias],
            Kernel::Skinny(_) => vec![a, a, b, bias],
            Kernel::Gemv(_) | Kernel::GemvDot(_) | Kernel::SkinnyCooperative(_) if self.transposed() => {
                vec![b, a, bias]
            }
            Kernel::Gemv(_) | Kernel::GemvDot(_) | Kernel::SkinnyCooperative(_) => vec![a, b, bias],
        }
    }

    pub(super) fn variant(&self) -> Variant {
        let [trans_a, trans_b] = self.trans.map(u32::from);
        let activation = activation_code(self.activation);
        let variant = match self.kernel {
            Kernel::Direct => {
                let vectors = u32::from(self.vectors);
                Variant::new(&DIRECT, self.dtypes, [vectors, trans_a, trans_b, activation])
            }
            Kernel::Tiled(tile) => {
                let [m, n, k, thread_m, thread_n] = tile.constants();
                let vectors = u32::from(self.vectors);
                let constants = [m, n, k, thread_m, thread_n, vectors, trans_a, trans_b, activation];
                Variant::new(&TILED, self.dtypes, constants)
            }
            Kernel::Cooperative(tile) => {
                let [m, n, k, rows, columns] = tile.constants();
                let in_registers = self.element_access && tile.rolls_loops() && self.dtypes[2] == DType::F16;
                let constants =
                    [m, n, k, rows, columns, trans_a, trans_b, activation, u32::from(in_registers)];
                let variant = Variant::new(&COOPERATIVE, self.dtypes, constants)
                    .with_libs(result_libs(self.dtypes[2], in_registers));
                return if tile.rolls_loops() { variant.with_rolled_loops() } else { variant };
            }
            Kernel::Skinny(skinny) => {
                return skinny.variant(self.dtypes, self.trans, self.activation, self.vectors);
            }
            Kernel::Gemv(gemv) => {
                return gemv.variant(self.dtypes, self.trans, self.activation, self.vectors);
            }
            Kernel::GemvDot(dots) => return dots.variant(self.dtypes, self.activation),
            Kernel::SkinnyCooperative(dots) => return dots.variant(self.dtypes[2], self.activation),
        };
        variant.with_libs(activation_libs(self.dtypes[2]))
    }
}

/// How `gemm/cooperative` makes results of this type, which a page needn't load.
fn result_libs(dtype: DType, in_registers: bool) -> &'static [Lib] {
    if cfg!(target_family = "wasm") {
        return activation_libs(dtype);
    }
    match (dtype, in_registers) {
        (DType::F16, true) => &[HALF, ACTIVATE_HALF, FRAGMENT_ELEMENTS, SHIFTED_VECTOR, RESULTS_IN_REGISTERS],
        (DType::F16, false) => &[HALF, ACTIVATE_HALF, RESULTS_STAGED],
        _ => &[ACTIVATE, RESULTS_STAGED],
    }
}

pub(super) fn variants() -> Vec<Variant> {
    use DType::{F16, F32};
    let tiled: Vec<Kernel> = std::iter::once(Kernel::Direct).chain(Tile::ALL.map(Kernel::Tiled)).collect();
    let cooperative: Vec<Kernel> = CooperativeTile::all().map(Kernel::Cooperative).collect();
    let mut variants = Vec::new();
    for dtypes in [[F32, F32, F32], [F16, F16, F16], [F16, F16, F32], [F32, F16, F32]] {
        let tensor_cores = if dtypes[..2] == [F16; 2] { cooperative.as_slice() } else { &[] };
        for (&kernel, vectors) in
            tiled.iter().flat_map(|k| [(k, false), (k, true)]).chain(tensor_cores.iter().map(|k| (k, true)))
        {
            let ways = if matches!(kernel, Kernel::Cooperative(_)) { &[false, true][..] } else { &[false] };
            for trans in [[false, false], [false, true], [true, false], [true, true]] {
                for (&activation, &element_access) in
                    Activation::ALL.iter().flat_map(|a| ways.iter().map(move |way| (a, way)))
                {
                    let plan = Plan {
                        kernel,
                        dtypes,
                        trans,
                        activation,
                        vectors,
                        packs: [false; 2],
                        transposes_b: false,
                        splits: 1,
                        strips: false,
                        emulated: false,
                        element_access,
                    };
                    variants.push(plan.variant());
                }
            }
        }
    }
    variants
}
