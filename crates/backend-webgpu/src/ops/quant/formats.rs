//! The helper files of the formats.

use backend_api::DType;
use backend_api::quant::QuantFormat;

use crate::kernels::Lib;
use crate::kernels::libs::{
    ACTIVATE, ACTIVATE_HALF, FRAGMENT_ELEMENTS, NO_LINE_EXPONENTS, QUANT_BLOCK_SCALES,
    QUANT_BLOCKS_IN_COLUMNS, QUANT_BYTES_LOW, QUANT_BYTES_MXFP4, QUANT_BYTES_Q5_K, QUANT_BYTES_Q6_K,
    QUANT_BYTES_Q8_0, QUANT_FRAGMENTS_LOW, QUANT_FRAGMENTS_MXFP4, QUANT_FRAGMENTS_Q5_K, QUANT_FRAGMENTS_Q6_K,
    QUANT_FRAGMENTS_Q8_0, QUANT_GROUP_SCALES, QUANT_IN_ORDER, QUANT_INPUT_1, QUANT_INPUT_4, QUANT_LOW,
    QUANT_MXFP4, QUANT_NORMED_F16, QUANT_NORMED_F32, QUANT_OUTPUT_1, QUANT_OUTPUT_4, QUANT_Q4_0, QUANT_Q5_K,
    QUANT_Q6_K, QUANT_Q8_0, QUANT_ROWS, QUANT_ROWS_IN_COLUMNS, QUANT_ROWS_NORMED, QUANT_SUPER_SCALES,
    QUANT_U4, QUANT_U4_ZEROS, QUANT_WEIGHTS, RESULTS_IN_REGISTERS, RESULTS_STAGED,
};

/// The files of a format, and more.
macro_rules! with_format {
    ($format:expr, [$($more:ident),*]) => {
        match $format {
            QuantFormat::Q8_0 => &[QUANT_Q8_0, QUANT_BLOCK_SCALES, $($more),*],
            QuantFormat::Q4_0 => &[QUANT_Q4_0, QUANT_LOW, QUANT_BLOCK_SCALES, $($more),*],
            QuantFormat::Mxfp4 => &[QUANT_MXFP4, $($more),*],
            QuantFormat::Q4_K => &[QUANT_LOW, QUANT_SUPER_SCALES, $($more),*],
            QuantFormat::Q5_K => &[QUANT_Q5_K, QUANT_SUPER_SCALES, $($more),*],
            QuantFormat::Q6_K => &[QUANT_Q6_K, $($more),*],
            QuantFormat::U4 { zero_points: true, .. } => {
                &[QUANT_U4_ZEROS, QUANT_LOW, QUANT_GROUP_SCALES, $($more),*]
            }
            QuantFormat::U4 { zero_points: false, .. } => {
                &[QUANT_U4, QUANT_LOW, QUANT_GROUP_SCALES, $($more),*]
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
    match format {
        QuantFormat::Q8_0 => with_results!(QUANT_BYTES_Q8_0),
        QuantFormat::Mxfp4 => with_results!(QUANT_BYTES_MXFP4),
        QuantFormat::Q5_K => with_results!(QUANT_BYTES_Q5_K),
        QuantFormat::Q6_K => with_results!(QUANT_BYTES_Q6_K),
        _ => with_results!(QUANT_BYTES_LOW),
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
    match format {
        QuantFormat::Q8_0 => with_results!(QUANT_FRAGMENTS_Q8_0),
        QuantFormat::Mxfp4 => with_results!(QUANT_FRAGMENTS_MXFP4, QUANT_IN_ORDER),
        QuantFormat::Q5_K => with_results!(QUANT_FRAGMENTS_Q5_K, QUANT_IN_ORDER),
        QuantFormat::Q6_K => with_results!(QUANT_FRAGMENTS_Q6_K, QUANT_IN_ORDER),
        _ => with_results!(QUANT_FRAGMENTS_LOW, QUANT_IN_ORDER),
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
    match format {
        QuantFormat::Q8_0 => with_results!(QUANT_FRAGMENTS_Q8_0),
        QuantFormat::Q5_K => with_results!(QUANT_FRAGMENTS_Q5_K),
        _ => with_results!(QUANT_FRAGMENTS_LOW),
    }
}

/// What reads the weights and makes numbers of f16 of them.
pub(super) const fn weight_libs(format: QuantFormat) -> &'static [Lib] {
    match format {
        QuantFormat::Q8_0 => with_format!(format, [QUANT_FRAGMENTS_Q8_0, QUANT_WEIGHTS]),
        QuantFormat::Q5_K => with_format!(format, [QUANT_FRAGMENTS_Q5_K, QUANT_WEIGHTS]),
        QuantFormat::Q6_K => with_format!(format, [QUANT_FRAGMENTS_Q6_K, QUANT_WEIGHTS]),
        _ => with_format!(format, [QUANT_FRAGMENTS_LOW, QUANT_WEIGHTS]),
    }
}

/// Whether the weights of a format may become numbers of f16: the scales of Mxfp4 are beyond f16's range, so that they
/// are applied to sums of f32.
pub(super) const fn fits_half(format: QuantFormat) -> bool {
    !matches!(format, QuantFormat::Mxfp4)
}

/// Whether the scales of a format are f16 and its weights have no minimum.
pub(super) const fn has_half_scales(format: QuantFormat) -> bool {
    !matches!(format, QuantFormat::Q4_K | QuantFormat::Q5_K | QuantFormat::Q6_K)
}
