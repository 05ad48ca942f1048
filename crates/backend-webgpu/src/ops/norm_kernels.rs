//! The kernels of normalisations and their variants.

use backend_api::DType;

use super::shared::rows::Rows;
use super::shared::vec_width::VecWidth;
use crate::kernels::libs::{VEC_1, VEC_4, WEIGHTS_CHANNEL, WEIGHTS_COLUMN};
use crate::kernels::{KernelSource, Lib, Variant, kernel, params};

static NORMALIZE: KernelSource = kernel!(
    "norm/normalize",
    libs: [GRID, SPECIAL, REDUCE, WORKGROUP, NORM_ROW, NORM_RESULT],
    types: ["T"],
    constants: ["CENTRED", "INPUT", "RESIDUAL", "BLOCK"],
    reads: 4,
    writes: 1,
    params: Params,
);

static MOMENTS: KernelSource = kernel!(
    "norm/moments",
    libs: [GRID, SPECIAL, REDUCE, WORKGROUP, NORM_ROW],
    types: ["T"],
    constants: ["RESIDUAL"],
    reads: 2,
    writes: 1,
    params: Params,
);

static NORMALIZE_APPLY: KernelSource = kernel!(
    "norm/normalize_apply",
    libs: [GRID, NORM_ROW, NORM_RESULT],
    types: ["T"],
    constants: ["CENTRED", "INPUT", "RESIDUAL"],
    reads: 5,
    writes: 1,
    params: Params,
);

params! {
    pub(super) struct Params {
        rows: u32,
        columns: u32,
        row_group: u32,
        parts: u32,
        eps: f32,
        scaled: u32,
        spatial: u32,
        channels: u32,
        groups: u32,
        x_offset: u32,
        residual_offset: u32,
        weight_offset: u32,
        bias_offset: u32,
        y_offset: u32,
    }
}

/// Where a kernel finds an operand of the output's shape, as shaders/lib/norm_row.wgsl numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Absent = 0,
    Bound = 1,
    Output = 2,
}

/// How memory is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) dtype: DType,
    pub(super) vec_width: VecWidth,
    /// Whether weights belong to channels rather than columns.
    pub(super) channels: bool,
}

impl Shape {
    fn libs(self) -> &'static [Lib] {
        match (self.vec_width, self.channels) {
            (VecWidth::One, false) => &[VEC_1, WEIGHTS_COLUMN],
            (VecWidth::One, true) => &[VEC_1, WEIGHTS_CHANNEL],
            (_, false) => &[VEC_4, WEIGHTS_COLUMN],
            (_, true) => &[VEC_4, WEIGHTS_CHANNEL],
        }
    }
}

/// What is done with the rows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Role {
    /// Whether the mean is subtracted.
    pub(super) centred: bool,
    pub(super) input: Place,
    pub(super) residual: Place,
}

impl Role {
    fn constants(self) -> [u32; 3] {
        [u32::from(self.centred), self.input as u32, self.residual as u32]
    }

    /// The kernels of layer and RMS normalisation, or of group normalisation, which has no residual.
    fn all(channels: bool) -> Vec<Self> {
        let mut all = Vec::new();
        for input in [Place::Bound, Place::Output] {
            if channels {
                all.push(Self { centred: true, input, residual: Place::Absent });
                continue;
            }
            for residual in [Place::Absent, Place::Bound, Place::Output] {
                all.extend([false, true].map(|centred| Self { centred, input, residual }));
            }
        }
        all
    }
}

/// Rows in registers, in blocks of so many vectors.
pub(super) fn normalize(shape: Shape, role: Role, block: u32) -> Variant {
    let [centred, input, residual] = role.constants();
    Variant::new(&NORMALIZE, [shape.dtype], [centred, input, residual, block]).with_libs(shape.libs())
}

/// The moments of long rows.
pub(super) fn moments(shape: Shape, residual: Place) -> Variant {
    Variant::new(&MOMENTS, [shape.dtype], [residual as u32]).with_libs(shape.vec_width.libs())
}

/// The result of long rows.
pub(super) fn apply(shape: Shape, role: Role) -> Variant {
    Variant::new(&NORMALIZE_APPLY, [shape.dtype], role.constants()).with_libs(shape.libs())
}

/// Every variant that a launch can ask for.
pub(super) fn variants() -> Vec<Variant> {
    let mut variants = Vec::new();
    for dtype in [DType::F32, DType::F16] {
        for channels in [false, true] {
            for role in Role::all(channels) {
                let shape = |vec_width| Shape { dtype, vec_width, channels };
                variants.extend(
                    Rows::shapes().map(|(vec_width, block)| normalize(shape(vec_width), role, block)),
                );
                variants
                    .extend([VecWidth::One, VecWidth::Four].map(|vec_width| apply(shape(vec_width), role)));
            }
        }
        for vec_width in [VecWidth::One, VecWidth::Four] {
            let shape = Shape { dtype, vec_width, channels: false };
            variants.extend([Place::Absent, Place::Bound].map(|residual| moments(shape, residual)));
        }
    }
    variants
}
