//! Products with a quantised matrix of shapes that kernels treat apart.

use backend_api::desc::{Matrix, QuantMatmulDesc, QuantMatrix};
use backend_api::quant::QuantFormat;
use backend_api::{Activation, DType, Gate};

use super::quant::{ALPHAS, PLAIN, Product, Residual, name_of};
use crate::case::Case;
use crate::data::Data;
use crate::grid::pairwise;
use crate::oracle::quant::Weights;
use crate::trial::Trial;
use crate::want::Want;

use DType::{F16, F32};

/// Products with tables of shapes: around tiles, of few rows, of long rows, normalised, and with weights beyond f16.
pub(super) fn shapes() -> impl Iterator<Item = Product> {
    tiles().chain(beyond()).chain(normalised()).chain(few()).chain(long())
}

/// Rows so long that loops over them have more than 65,535 iterations, after which some drivers leave a loop: of one
/// row of A, and of as many as share a read of B, in vectors and number by number.
fn long() -> impl Iterator<Item = Product> {
    const SHAPES: [(QuantFormat, DType, usize, usize, usize); 3] = [
        (QuantFormat::Mxfp4, F32, 1, 2_944_000, 0),
        (QuantFormat::Q4_0, F16, 8, 2_944_000, 0),
        (QuantFormat::Q4_0, F16, 8, 524_288, 1),
    ];
    SHAPES.into_iter().map(|(format, a_type, m, k, ld_extra)| Product {
        format,
        dtypes: [a_type, F32],
        m,
        n: 1,
        k,
        ld_extra,
        // Bounds of such sums would have room for what is left out.
        data: Data::Integers,
        ..PLAIN
    })
}

/// Products of many rows of f16 around the tiles of tensor cores, whose rows are aligned.
fn tiles() -> impl Iterator<Item = Product> {
    const BLOCKS: [(QuantFormat, usize); 14] = [
        (QuantFormat::Q8_0, 96),
        (QuantFormat::Q8_0, 160),
        (QuantFormat::Q4_0, 128),
        (QuantFormat::Q4_0, 288),
        (QuantFormat::Q4_1, 160),
        (QuantFormat::Q5_0, 288),
        (QuantFormat::Q5_1, 128),
        (QuantFormat::IQ4_NL, 96),
        (QuantFormat::IQ4_XS, 512),
        (QuantFormat::Q2_K, 256),
        (QuantFormat::Q3_K, 512),
        (QuantFormat::Q4_K, 512),
        (QuantFormat::Q5_K, 256),
        (QuantFormat::Q6_K, 256),
    ];
    const ROWS: [usize; 4] = [34, 64, 129, 300];
    const COLUMNS: [usize; 5] = [8, 65, 128, 131, 200];
    const ACTIVATIONS: [Activation; 3] = [Activation::Identity, Activation::Gelu, Activation::Relu];
    let grid =
        pairwise(&[BLOCKS.len(), ROWS.len(), COLUMNS.len(), 2, 2, 2, 2, 3, 3, 2], "quant_matmul tiles");
    grid.into_iter().map(|row| Product {
        format: BLOCKS[row[0]].0,
        dtypes: [F16, [F16, F32][row[3]]],
        m: ROWS[row[1]],
        n: COLUMNS[row[2]],
        k: BLOCKS[row[0]].1,
        ld_extra: [0, 8][row[4]],
        alpha: ALPHAS[row[5]],
        bias: row[6] == 1,
        activation: ACTIVATIONS[row[7]],
        residual: [Residual::None, Residual::Apart, Residual::InPlace][row[8]],
        data: [Data::Uniform, Data::Integers][row[9]],
        ..PLAIN
    })
}

/// Products with weights that no f16 can be: by few rows and by many, of f16 too.
fn beyond() -> impl Iterator<Item = Product> {
    const ROWS: [usize; 4] = [1, 5, 16, 33];
    let grid = pairwise(&[ROWS.len(), 3, 3, 2], "quant_matmul beyond");
    grid.into_iter().map(|row| Product {
        format: QuantFormat::Mxfp4,
        dtypes: [[F16, F32], [F32, F32]][row[3]],
        m: ROWS[row[0]],
        n: [5, 16, 65][row[1]],
        k: [96, 256, 384][row[2]],
        beyond: true,
        ..PLAIN
    })
}

/// Products of normalised rows of f16, or rounded to it, by many rows of B: for all of their tiles on tensor cores, rows are normalised once.
fn normalised() -> impl Iterator<Item = Product> {
    const BLOCKS: [(QuantFormat, usize); 9] = [
        (QuantFormat::Q4_0, 128),
        (QuantFormat::Q4_0, 896),
        (QuantFormat::Q4_1, 384),
        (QuantFormat::IQ4_XS, 256),
        (QuantFormat::Q2_K, 256),
        (QuantFormat::Q8_0, 256),
        (QuantFormat::Mxfp4, 384),
        (QuantFormat::Q4_K, 256),
        // More than a workgroup multiplies at once.
        (QuantFormat::Q4_K, 2304),
    ];
    let grid = pairwise(&[BLOCKS.len(), 2, 2, 2, 2, 2], "quant_matmul normalised");
    grid.into_iter().map(|row| {
        let gate = [None, Some(Gate::Swiglu)][row[2]];
        let (format, k) = BLOCKS[row[0]];
        Product {
            format,
            dtypes: [[F16, F32][row[5]], [F16, F32][row[3]]],
            // Several long rows aren't normalised so.
            m: if row[1] == 0 || k > 1024 { 1 } else { 3 },
            n: if gate.is_some() { 4501 } else { 9001 },
            k,
            residual: [Residual::None, Residual::InPlace][row[4]],
            norm: true,
            narrows: row[5] == 1,
            gate,
            ..PLAIN
        }
    })
}

/// Products of few rows of f16 along whole units of 128, an odd number of them and an even one, fewer than a workgroup takes
/// at once and more.
fn few() -> impl Iterator<Item = Product> {
    const BLOCKS: [(QuantFormat, usize); 25] = [
        (QuantFormat::Q4_1, 384),
        (QuantFormat::Q4_1, 2048),
        (QuantFormat::Q5_0, 2176),
        (QuantFormat::Q5_1, 896),
        (QuantFormat::IQ4_NL, 2432),
        (QuantFormat::IQ4_XS, 2304),
        (QuantFormat::Q2_K, 512),
        (QuantFormat::Q2_K, 2304),
        (QuantFormat::Q3_K, 768),
        (QuantFormat::Q3_K, 4096),
        (QuantFormat::Q8_0, 384),
        (QuantFormat::Q8_0, 4480),
        (QuantFormat::Q4_0, 128),
        (QuantFormat::Q4_0, 896),
        (QuantFormat::Q4_0, 2048),
        (QuantFormat::Q4_0, 2176),
        (QuantFormat::Mxfp4, 2432),
        (QuantFormat::Q4_K, 2048),
        (QuantFormat::Q4_K, 4096),
        (QuantFormat::Q5_K, 2304),
        (QuantFormat::Q6_K, 512),
        (QuantFormat::Q6_K, 2304),
        (QuantFormat::U4 { group: 16, zero_points: false }, 1152),
        (QuantFormat::U4 { group: 32, zero_points: false }, 2176),
        (QuantFormat::U4 { group: 128, zero_points: true }, 2176),
    ];
    /// Elements of all rows that tensor cores normalise.
    const MOST_NORMED: usize = 4096;
    let activations = Activation::ALL.len();
    let values = [BLOCKS.len(), 5, 4, 2, 2, 2, 2, activations, 3, Gate::ALL.len() + 3, 3];
    pairwise(&values, "quant_matmul few").into_iter().map(move |row| {
        let (format, k) = BLOCKS[row[0]];
        // One long row has a kernel of its own.
        let m = [1, 1, 2, 9, 35][row[1]];
        let norm = row[10] > 0 && m * k <= MOST_NORMED;
        let narrows = norm && row[10] == 2;
        // Beside a norm, tensor cores add to C alone.
        let residuals = match norm {
            true => [Residual::None, Residual::InPlace, Residual::InPlace],
            false => [Residual::None, Residual::Apart, Residual::InPlace],
        };
        Product {
            format,
            dtypes: [if narrows { F32 } else { F16 }, [F16, F32][row[3]]],
            m,
            n: [1, 8, 21, 40][row[2]],
            k,
            ld_extra: [0, 8][row[4]],
            alpha: ALPHAS[row[5]],
            bias: row[6] == 1,
            activation: Activation::ALL[row[7]],
            residual: residuals[row[8]],
            norm,
            narrows,
            gate: Gate::ALL.get(row[9]).copied(),
            ..PLAIN
        }
    })
}

/// Rows of B that end in an infinite scale, along odd numbers of units: the last one's scale must not meet the zeros behind
/// the row.
pub(super) fn infinite() -> impl Iterator<Item = Case> {
    let formats =
        [QuantFormat::Q8_0, QuantFormat::Q4_0, QuantFormat::Q4_1, QuantFormat::Q5_1, QuantFormat::IQ4_NL];
    let shapes = [128, 2176, 4480].into_iter().flat_map(|k| [1, 2].map(|m| (m, k)));
    formats.into_iter().flat_map(move |format| shapes.clone().map(move |shape| (format, shape))).map(
        |(format, (m, k))| {
            const N: usize = 5;
            Case::new("quant_matmul", format!("{}_m{m}_k{k}_infinite", name_of(format)), move |_| {
                let mut trial = Trial::new();
                trial.input("a", F16, &vec![1.0; m * k]);
                trial.planes("b", &Weights::ending_in_infinity(format, N, k).words());
                trial.output("c", F32, vec![Want::Exact(f64::INFINITY); m * N]);
                trial.calling(move |backend, p| {
                    let b = QuantMatrix::new(p[1], format, N, k);
                    let [a, c] = [Matrix::new(p[0], F16, k), Matrix::new(p[2], F32, N)];
                    backend.quant_matmul(&QuantMatmulDesc::new(m, a, b, c))
                })
            })
        },
    )
}
