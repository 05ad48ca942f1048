//! The kernels of normalisations and their variants.

use backend_api::DType;

use super::shared::rows::Rows;
use super::shared::vec_width::VecWidth;
use crate::kernels::libs::{
    GRID, NORM_ADDED, NORM_EDGES, NORM_NO_EDGES, NORM_OUTPUT, NORM_OUTPUT_HALF_1, NORM_OUTPUT_HALF_4,
    NORM_RESULT, NORM_ROW, NORM_SUM, REDUCE, ROW_SHUFFLES, ROWS_HALVES, ROWS_WHOLE, VEC_1, VEC_2, VEC_4,
    WEIGHTS_CHANNEL, WEIGHTS_COLUMN, WEIGHTS_COLUMN_F32, WEIGHTS_COLUMN_HALVES, WEIGHTS_COLUMN_HALVES_F32,
    WORKGROUP,
};
use crate::kernels::{KernelSource, Lib, Variant, constants, kernel, numbered, params};

constants! { struct RowConstants { role: Role, block: u32 } }
constants! { struct MomentsConstants { residual: Place } }

const NORMALIZE_ROWS: KernelSource = kernel!(
    "norm/normalize", libs: [GRID, REDUCE, NORM_ROW, NORM_RESULT, NORM_NO_SUM],
    types: ["T", "W", "O"], constants: RowConstants, params: Params,
    reads: ["x: V", "residual: V", "weight", "bias"], writes: ["y: Output"],
);

/// The file with a second output, for the sum of input and residual.
const NORMALIZE_SUM_ROWS: KernelSource = KernelSource {
    libs: &[GRID, REDUCE, NORM_ROW, NORM_RESULT, NORM_SUM],
    writes: WITH_SUM,
    mixes_outputs: true,
    ..NORMALIZE_ROWS
};

const WITH_SUM: &[&str] = &["y: Output", "sums: V"];

/// The file whose second output is what results are added to.
const NORMALIZE_ADDED_ROWS: KernelSource = KernelSource {
    libs: &[GRID, REDUCE, NORM_ROW, NORM_RESULT, NORM_ADDED],
    writes: WITH_SUM,
    mixes_outputs: true,
    ..NORMALIZE_ROWS
};

static NORMALIZE: KernelSource = NORMALIZE_ROWS;
static NORMALIZE_SUM: KernelSource = NORMALIZE_SUM_ROWS;
static NORMALIZE_ADDED: KernelSource = NORMALIZE_ADDED_ROWS;

/// The files for rows of which each is shared within a subgroup.
static NORMALIZE_SHUFFLED: KernelSource = KernelSource { subgroups: true, ..NORMALIZE_ROWS };
static NORMALIZE_SUM_SHUFFLED: KernelSource = KernelSource { subgroups: true, ..NORMALIZE_SUM_ROWS };
static NORMALIZE_ADDED_SHUFFLED: KernelSource = KernelSource { subgroups: true, ..NORMALIZE_ADDED_ROWS };

static MOMENTS: KernelSource = kernel!(
    "norm/moments", libs: [GRID, REDUCE, WORKGROUP, NORM_ROW],
    types: ["T"], constants: MomentsConstants, params: Params,
    reads: ["x: V", "residual: V"], writes: ["moments: f32"],
);

const APPLY_MOMENTS: KernelSource = kernel!(
    "norm/normalize_apply", libs: [GRID, NORM_ROW, NORM_RESULT, NORM_NO_SUM],
    types: ["T", "W", "O"], constants: Role, params: Params,
    reads: ["x: V", "residual: V", "weight", "bias", "moments: f32"], writes: ["y: Output"],
);

static NORMALIZE_APPLY: KernelSource = APPLY_MOMENTS;

static NORMALIZE_APPLY_SUM: KernelSource = KernelSource {
    libs: &[GRID, NORM_ROW, NORM_RESULT, NORM_SUM],
    writes: WITH_SUM,
    mixes_outputs: true,
    ..APPLY_MOMENTS
};

params! {
    pub(super) struct Params {
        rows: u32,
        // Vectors of a row.
        columns: u32,
        row_group: u32,
        // Workgroups that share a row.
        parts: u32,
        eps: f32,
        // Bit 0: there is a weight; bit 1: there is a bias. Bit 2: rows aren't centred, for the sums of long ones.
        scaled: u32,
        // Vectors of a channel, channels of a row, and rows that have channels of their own.
        spatial: u32,
        channels: u32,
        groups: u32,
        x_offset: u32,
        residual_offset: u32,
        weight_offset: u32,
        bias_offset: u32,
        y_offset: u32,
        sum_offset: u32,
        // Elements of a row.
        length: u32,
        // Of rows that share words.
        rows_per_group: u32,
        rows_before: u32,
    }
}

numbered! {
    /// Where a kernel finds an operand of the output's shape, as shaders/lib/norm_row.wgsl numbers it: nowhere,
    /// in a binding of its own, or in the memory that the output or the sum is written to.
    pub(super) enum Place { Absent, Bound, Output, Sum }
}

/// The most words of f16 that an invocation holds: with the numbers in them, more are more than registers hold.
pub(super) const MOST_WORDS: u32 = 16;

/// The types of rows, of weights and biases, and of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types {
    pub(super) x: DType,
    pub(super) weight: DType,
    pub(super) y: DType,
}

impl Types {
    pub(super) const fn all(dtype: DType) -> Self {
        Self { x: dtype, weight: dtype, y: dtype }
    }

    /// Whether results are f16 beside rows of f32.
    fn narrow(self) -> bool {
        self.y != self.x
    }
}

/// How memory is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    types: Types,
    vec_width: VecWidth,
    /// Whether weights belong to channels rather than columns.
    channels: bool,
}

impl Shape {
    pub(super) const fn new(types: Types, vec_width: VecWidth, channels: bool) -> Self {
        Self { types, vec_width, channels }
    }

    /// In the order of the types of the kernels' files.
    const fn types(self) -> [DType; 3] {
        let Types { x, weight, y } = self.types;
        [x, weight, y]
    }

    /// The helper files of kernels whose invocations take vectors of any row.
    fn libs(self) -> &'static [Lib] {
        match (self.vec_width, self.channels, self.types.x == self.types.weight) {
            (VecWidth::One, false, true) if self.types.narrow() => {
                &[VEC_1, WEIGHTS_COLUMN, NORM_OUTPUT_HALF_1]
            }
            (_, false, true) if self.types.narrow() => &[VEC_4, WEIGHTS_COLUMN, NORM_OUTPUT_HALF_4],
            (VecWidth::One, false, true) => &[VEC_1, WEIGHTS_COLUMN, NORM_OUTPUT],
            (VecWidth::One, false, false) => &[VEC_1, WEIGHTS_COLUMN_F32, NORM_OUTPUT],
            (VecWidth::One, true, _) => &[VEC_1, WEIGHTS_CHANNEL, NORM_OUTPUT],
            (_, false, true) => &[VEC_4, WEIGHTS_COLUMN, NORM_OUTPUT],
            (_, false, false) => &[VEC_4, WEIGHTS_COLUMN_F32, NORM_OUTPUT],
            (_, true, _) => &[VEC_4, WEIGHTS_CHANNEL, NORM_OUTPUT],
        }
    }

    /// The helper files of kernels whose invocations share rows, and join their results in a workgroup or within
    /// subgroups.
    fn row_libs(self, shuffled: bool) -> &'static [Lib] {
        macro_rules! joined {
            ($($lib:ident),*) => {
                if shuffled { &[$($lib,)* ROW_SHUFFLES] } else { &[$($lib,)* WORKGROUP] }
            };
        }
        macro_rules! whole {
            ($($lib:ident),*) => { joined!(ROWS_WHOLE, NORM_NO_EDGES, $($lib),*) };
        }
        macro_rules! halves {
            ($($lib:ident),*) => { joined!(VEC_2, ROWS_HALVES, NORM_EDGES, NORM_OUTPUT, $($lib),*) };
        }
        match (self.vec_width, self.channels, self.types.x == self.types.weight) {
            (VecWidth::Two, _, true) => halves!(WEIGHTS_COLUMN_HALVES),
            (VecWidth::Two, _, false) => halves!(WEIGHTS_COLUMN_HALVES_F32),
            (VecWidth::One, false, true) if self.types.narrow() => {
                whole!(VEC_1, NORM_OUTPUT_HALF_1, WEIGHTS_COLUMN)
            }
            (_, false, true) if self.types.narrow() => whole!(VEC_4, NORM_OUTPUT_HALF_4, WEIGHTS_COLUMN),
            (VecWidth::One, false, true) => whole!(VEC_1, NORM_OUTPUT, WEIGHTS_COLUMN),
            (VecWidth::One, false, false) => whole!(VEC_1, NORM_OUTPUT, WEIGHTS_COLUMN_F32),
            (VecWidth::One, true, _) => whole!(VEC_1, NORM_OUTPUT, WEIGHTS_CHANNEL),
            (_, false, true) => whole!(VEC_4, NORM_OUTPUT, WEIGHTS_COLUMN),
            (_, false, false) => whole!(VEC_4, NORM_OUTPUT, WEIGHTS_COLUMN_F32),
            (_, true, _) => whole!(VEC_4, NORM_OUTPUT, WEIGHTS_CHANNEL),
        }
    }

    /// Whether there are kernels for rows in such blocks, in this role.
    fn has_rows(self, role: Role, block: u32) -> bool {
        self.vec_width != VecWidth::Two || !(self.channels || role.summed || block > MOST_WORDS)
    }
}

constants! {
    /// What is done with the rows.
    pub(super) struct Role {
        /// Whether the mean is subtracted.
        centred: bool,
        input: Place,
        residual: Place,
        /// Whether the sum of both is written too.
        summed: bool,
    }
}

impl Role {
    /// The kernels of group normalisation, which has no residual.
    fn of_channels() -> Vec<Self> {
        let role = |input| Self { centred: true, input, residual: Place::Absent, summed: false };
        [Place::Bound, Place::Output].map(role).to_vec()
    }

    /// The kernels of layer and RMS normalisation. Launchers swap input and residual where that leaves fewer
    /// of them.
    fn of_columns() -> Vec<Self> {
        let mut all = Vec::new();
        for centred in [false, true] {
            for input in [Place::Bound, Place::Output] {
                let role = |residual, summed| Self { centred, input, residual, summed };
                all.extend([Place::Absent, Place::Bound, Place::Output].map(|place| role(place, false)));
                all.extend([Place::Bound, Place::Sum].map(|place| role(place, true)));
            }
        }
        all
    }

    /// Whether there is neither a mean, a residual nor a second output, and rows and weights of columns are f32.
    pub(super) fn is_plain(self, shape: Shape) -> bool {
        let has_rows_alone = !self.centred && self.residual == Place::Absent && !self.summed;
        let Shape { types: Types { x, weight, .. }, channels, .. } = shape;
        has_rows_alone && !channels && [x, weight] == [DType::F32; 2]
    }

    /// Whether the output is where an operand is.
    const fn is_in_place(self) -> bool {
        matches!(self.input, Place::Output) || matches!(self.residual, Place::Output)
    }
}

/// Rows in registers, in blocks of so many vectors.
pub(super) fn normalize(shape: Shape, role: Role, block: u32, shuffled: bool) -> Variant {
    let source = match (role.summed, shuffled) {
        (false, false) => &NORMALIZE,
        (true, false) => &NORMALIZE_SUM,
        (false, true) => &NORMALIZE_SHUFFLED,
        (true, true) => &NORMALIZE_SUM_SHUFFLED,
    };
    let constants = RowConstants { role, block };
    Variant::new(source, shape.types(), constants).with_libs(shape.row_libs(shuffled))
}

/// Rows of f32 in registers that are also added to others, without a mean or a residual.
pub(super) fn normalize_added(vec_width: VecWidth, input: Place, block: u32, shuffled: bool) -> Variant {
    let source = if shuffled { &NORMALIZE_ADDED_SHUFFLED } else { &NORMALIZE_ADDED };
    let shape = Shape::new(Types::all(DType::F32), vec_width, false);
    let role = Role { centred: false, input, residual: Place::Absent, summed: false };
    Variant::new(source, shape.types(), RowConstants { role, block }).with_libs(shape.row_libs(shuffled))
}

/// The moments of long rows.
pub(super) fn moments(dtype: DType, vec_width: VecWidth, residual: Place) -> Variant {
    Variant::new(&MOMENTS, [dtype], MomentsConstants { residual }).with_libs(vec_width.libs())
}

/// The result of long rows.
pub(super) fn apply(shape: Shape, role: Role) -> Variant {
    let source = if role.summed { &NORMALIZE_APPLY_SUM } else { &NORMALIZE_APPLY };
    Variant::new(source, shape.types(), role).with_libs(shape.libs())
}

/// Every variant that a launch can ask for.
pub(super) fn variants() -> Vec<Variant> {
    const F32: DType = DType::F32;
    const F16: DType = DType::F16;
    let mut variants = Vec::new();
    let types = [[F32, F32, F32], [F16, F16, F16], [F16, F32, F16], [F32, F32, F16]];
    for ([x, weight, y], channels) in types.into_iter().flat_map(|types| [(types, false), (types, true)]) {
        let types = Types { x, weight, y };
        let shape = |vec_width| Shape::new(types, vec_width, channels);
        let mut roles = if channels { Role::of_channels() } else { Role::of_columns() };
        roles.retain(|role| !types.narrow() || !channels && !role.is_in_place());
        for role in roles {
            let rows = Rows::shapes(x);
            let rows = rows.filter(|&(vec_width, block)| shape(vec_width).has_rows(role, block));
            variants.extend(rows.flat_map(|(vec_width, block)| {
                [false, true].map(|shuffled| normalize(shape(vec_width), role, block, shuffled))
            }));
            variants.extend([VecWidth::One, VecWidth::Four].map(|vec_width| apply(shape(vec_width), role)));
        }
    }
    for input in [Place::Bound, Place::Output] {
        variants.extend(Rows::shapes(F32).flat_map(|(vec_width, block)| {
            [false, true].map(|shuffled| normalize_added(vec_width, input, block, shuffled))
        }));
    }
    for dtype in [F32, F16] {
        for vec_width in [VecWidth::One, VecWidth::Four] {
            let places = [Place::Absent, Place::Bound];
            variants.extend(places.map(|residual| moments(dtype, vec_width, residual)));
        }
    }
    variants
}
