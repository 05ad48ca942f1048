//! The helper files of the formats.

use backend_api::DType;
use backend_api::quant::{QuantCode, QuantFormat, ScaleKind};

use crate::kernels::Lib;
use crate::kernels::libs::{
    ACTIVATE, ACTIVATE_HALF, FRAGMENT_ELEMENTS, NO_LINE_EXPONENTS, QUANT_BLOCK_MINIMA, QUANT_BLOCK_SCALES,
    QUANT_BLOCKS_IN_COLUMNS, QUANT_BYTES_EIGHT, QUANT_BYTES_FIVE, QUANT_BYTES_FOUR, QUANT_BYTES_IQ4,
    QUANT_BYTES_MXFP4, QUANT_BYTES_SIX, QUANT_BYTES_THREE, QUANT_EIGHT, QUANT_FIVE, QUANT_FOUR,
    QUANT_FRAGMENTS_EIGHT, QUANT_FRAGMENTS_FIVE, QUANT_FRAGMENTS_FOUR, QUANT_FRAGMENTS_IQ4,
    QUANT_FRAGMENTS_MXFP4, QUANT_FRAGMENTS_SIX, QUANT_FRAGMENTS_THREE, QUANT_FRAGMENTS_TWO,
    QUANT_GROUP_SCALES, QUANT_HALF_MINIMA, QUANT_HALF_SCALES, QUANT_IN_ORDER, QUANT_INPUT_1, QUANT_INPUT_4,
    QUANT_IQ4, QUANT_MXFP4, QUANT_NORMED_F16, QUANT_NORMED_F32, QUANT_OUTPUT_1, QUANT_OUTPUT_4, QUANT_ROWS,
    QUANT_ROWS_IN_COLUMNS, QUANT_ROWS_NORMED, QUANT_SIGNED_SUPER_SCALES, QUANT_SIX, QUANT_SUPER_SCALES,
    QUANT_THREE, QUANT_TWO, QUANT_U4, QUANT_U4_ZEROS, QUANT_VALUES_IQ4, QUANT_WEIGHTS, QUANT_ZERO_0,
    QUANT_ZERO_4, QUANT_ZERO_8, QUANT_ZERO_16, QUANT_ZERO_32, RESULTS_IN_REGISTERS, RESULTS_STAGED,
};

/// The files of a format, and more.
macro_rules! with_format {
    ($format:expr, [$($more:ident),*]) => {
        match $format {
            QuantFormat::Q8_0 => &[QUANT_EIGHT, QUANT_BLOCK_SCALES, QUANT_ZERO_0, $($more),*],
            QuantFormat::Q4_0 => &[QUANT_FOUR, QUANT_BLOCK_SCALES, QUANT_ZERO_8, $($more),*],
            QuantFormat::Q4_1 => &[QUANT_FOUR, QUANT_BLOCK_MINIMA, $($more),*],
            QuantFormat::Q5_0 => &[QUANT_FIVE, QUANT_BLOCK_SCALES, QUANT_ZERO_16, $($more),*],
            QuantFormat::Q5_1 => &[QUANT_FIVE, QUANT_BLOCK_MINIMA, $($more),*],
            QuantFormat::IQ4_NL => &[QUANT_IQ4, QUANT_BLOCK_SCALES, QUANT_ZERO_0, $($more),*],
            QuantFormat::IQ4_XS => &[QUANT_IQ4, QUANT_SIGNED_SUPER_SCALES, $($more),*],
            QuantFormat::Mxfp4 => &[QUANT_MXFP4, $($more),*],
            QuantFormat::Q2_K => &[QUANT_TWO, QUANT_HALF_MINIMA, $($more),*],
            QuantFormat::Q3_K => &[QUANT_THREE, QUANT_HALF_SCALES, QUANT_ZERO_4, $($more),*],
            QuantFormat::Q4_K => &[QUANT_FOUR, QUANT_SUPER_SCALES, $($more),*],
            QuantFormat::Q5_K => &[QUANT_FIVE, QUANT_SUPER_SCALES, $($more),*],
            QuantFormat::Q6_K => &[QUANT_SIX, QUANT_HALF_SCALES, QUANT_ZERO_32, $($more),*],
            QuantFormat::U4 { zero_points: true, .. } => {
                &[QUANT_U4_ZEROS, QUANT_FOUR, QUANT_GROUP_SCALES, $($more),*]
            }
            QuantFormat::U4 { zero_points: false, .. } => {
                &[QUANT_U4, QUANT_FOUR, QUANT_GROUP_SCALES, $($more),*]
            }
            // Refused before: the contract may grow.
            _ => &[],
        }
    };
}

/// A format of each kind that has files of its own.
pub(super) fn kinds() -> impl Iterator<Item = QuantFormat> {
    QuantFormat::GGUF
        .into_iter()
        .chain([false, true].map(|zero_points| QuantFormat::U4 { group: 32, zero_points }))
}

/// What reads the weights and, by vectors or number by number, writes them.
pub(super) const fn format_libs(format: QuantFormat, vectors: bool) -> &'static [Lib] {
    if vectors { with_format!(format, [QUANT_OUTPUT_4]) } else { with_format!(format, [QUANT_OUTPUT_1]) }
}

/// What reads the weights and, by vectors or number by number, the rows of A, and the activations for results
/// of f16 or f32.
pub(super) const fn product_libs(format: QuantFormat, vectors: bool, half: bool) -> &'static [Lib] {
    match (vectors, half) {
        (false, false) => with_format!(format, [QUANT_INPUT_1, ACTIVATE]),
        (false, true) => with_format!(format, [QUANT_INPUT_1, ACTIVATE_HALF]),
        (true, false) => with_format!(format, [QUANT_INPUT_4, ACTIVATE]),
        (true, true) => with_format!(format, [QUANT_INPUT_4, ACTIVATE_HALF]),
    }
}

/// What reads the weights as bytes, and the activations for results of f16 or f32.
pub(super) const fn int8_libs(format: QuantFormat, half: bool) -> &'static [Lib] {
    macro_rules! with_results {
        ($bytes:ident) => {
            if half {
                with_format!(format, [$bytes, ACTIVATE_HALF])
            } else {
                with_format!(format, [$bytes, ACTIVATE])
            }
        };
    }
    match format.code() {
        QuantCode::Three => with_results!(QUANT_BYTES_THREE),
        QuantCode::Four => with_results!(QUANT_BYTES_FOUR),
        QuantCode::Five => with_results!(QUANT_BYTES_FIVE),
        QuantCode::Six => with_results!(QUANT_BYTES_SIX),
        QuantCode::Eight => with_results!(QUANT_BYTES_EIGHT),
        QuantCode::E2m1 => with_results!(QUANT_BYTES_MXFP4),
        QuantCode::Iq4 => with_results!(QUANT_BYTES_IQ4),
        // Formats of two bits have minima of half blocks, for which the kernel has no sums.
        _ => &[],
    }
}

/// What reads the weights as elements of fragments, in their own order or, Q8_0's, another that A takes too, the rows
/// of A, as they are or normalised from a type, one of them as columns of blocks or several as columns, and the activations for
/// results of f16 or f32.
pub(super) const fn fragment_libs(
    format: QuantFormat,
    one_row: bool,
    normed: Option<DType>,
    half: bool,
) -> &'static [Lib] {
    // No browser offers tensor cores.
    if cfg!(target_family = "wasm") {
        return &[];
    }
    macro_rules! with_results {
        ($($fragments:ident),+) => {
            match (normed, half) {
                (None, false) => with_columns!($($fragments,)+ QUANT_ROWS, ACTIVATE),
                (None, true) => with_columns!($($fragments,)+ QUANT_ROWS, ACTIVATE_HALF),
                (Some(DType::F32), false) => {
                    with_columns!($($fragments,)+ QUANT_ROWS_NORMED, QUANT_NORMED_F32, ACTIVATE)
                }
                (Some(DType::F32), true) => {
                    with_columns!($($fragments,)+ QUANT_ROWS_NORMED, QUANT_NORMED_F32, ACTIVATE_HALF)
                }
                (Some(_), false) => {
                    with_columns!($($fragments,)+ QUANT_ROWS_NORMED, QUANT_NORMED_F16, ACTIVATE)
                }
                (Some(_), true) => {
                    with_columns!($($fragments,)+ QUANT_ROWS_NORMED, QUANT_NORMED_F16, ACTIVATE_HALF)
                }
            }
        };
    }
    macro_rules! with_columns {
        ($($more:ident),+) => {
            if one_row {
                with_format!(format, [$($more,)+ QUANT_BLOCKS_IN_COLUMNS])
            } else {
                with_format!(format, [$($more,)+ QUANT_ROWS_IN_COLUMNS])
            }
        };
    }
    match format.code() {
        QuantCode::Two => with_results!(QUANT_FRAGMENTS_TWO, QUANT_IN_ORDER),
        QuantCode::Three => with_results!(QUANT_FRAGMENTS_THREE, QUANT_IN_ORDER),
        QuantCode::Four => with_results!(QUANT_FRAGMENTS_FOUR, QUANT_IN_ORDER),
        QuantCode::Five => with_results!(QUANT_FRAGMENTS_FIVE, QUANT_IN_ORDER),
        QuantCode::Six => with_results!(QUANT_FRAGMENTS_SIX, QUANT_IN_ORDER),
        QuantCode::Eight => with_results!(QUANT_FRAGMENTS_EIGHT),
        QuantCode::E2m1 => with_results!(QUANT_FRAGMENTS_MXFP4, QUANT_IN_ORDER),
        QuantCode::Iq4 => with_results!(QUANT_FRAGMENTS_IQ4, QUANT_IN_ORDER),
        _ => &[],
    }
}

/// What reads the weights as elements of fragments, and makes results of f16 in registers or of f32 by way of
/// workgroup memory.
pub(super) const fn tile_libs(format: QuantFormat, half: bool) -> &'static [Lib] {
    macro_rules! with_results {
        ($fragments:ident) => {
            if half {
                with_format!(
                    format,
                    [$fragments, QUANT_WEIGHTS, ACTIVATE_HALF, FRAGMENT_ELEMENTS, RESULTS_IN_REGISTERS]
                )
            } else {
                with_format!(format, [$fragments, QUANT_WEIGHTS, ACTIVATE, NO_LINE_EXPONENTS, RESULTS_STAGED])
            }
        };
    }
    match format.code() {
        QuantCode::Four => with_results!(QUANT_FRAGMENTS_FOUR),
        QuantCode::Five => with_results!(QUANT_FRAGMENTS_FIVE),
        QuantCode::Eight => with_results!(QUANT_FRAGMENTS_EIGHT),
        QuantCode::Iq4 => with_results!(QUANT_FRAGMENTS_IQ4),
        // Formats with a fourth plane have no such kernel.
        _ => &[],
    }
}

/// What reads the weights and makes numbers of f16 of them.
pub(super) const fn weight_libs(format: QuantFormat) -> &'static [Lib] {
    match format.code() {
        QuantCode::Two => with_format!(format, [QUANT_FRAGMENTS_TWO, QUANT_WEIGHTS]),
        QuantCode::Three => with_format!(format, [QUANT_FRAGMENTS_THREE, QUANT_WEIGHTS]),
        QuantCode::Four => with_format!(format, [QUANT_FRAGMENTS_FOUR, QUANT_WEIGHTS]),
        QuantCode::Five => with_format!(format, [QUANT_FRAGMENTS_FIVE, QUANT_WEIGHTS]),
        QuantCode::Six => with_format!(format, [QUANT_FRAGMENTS_SIX, QUANT_WEIGHTS]),
        QuantCode::Eight => with_format!(format, [QUANT_FRAGMENTS_EIGHT, QUANT_WEIGHTS]),
        QuantCode::Iq4 => with_format!(format, [QUANT_VALUES_IQ4, QUANT_WEIGHTS]),
        // The weights of Mxfp4 may be beyond f16.
        _ => &[],
    }
}

/// Whether the weights of a format may become numbers of f16: the scales of Mxfp4 are beyond f16's range, so that they
/// are applied to sums of f32.
pub(super) const fn fits_half(format: QuantFormat) -> bool {
    !matches!(format, QuantFormat::Mxfp4)
}

/// Whether the halves of a format's blocks have scales of their own.
pub(super) const fn has_half_blocks(format: QuantFormat) -> bool {
    match format {
        QuantFormat::U4 { group, .. } => group < 32,
        _ => format.scale_kind().has_halves(),
    }
}

/// Whether the scales of a format are f16 and its weights have no minimum.
pub(super) const fn has_half_scales(format: QuantFormat) -> bool {
    matches!(format.scale_kind(), ScaleKind::Block | ScaleKind::Group)
}
