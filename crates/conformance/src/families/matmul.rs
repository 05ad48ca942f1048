//! `matmul`: element types, a batch, a bias and an activation.

use backend_api::desc::{Bias, BiasAxis, MatmulDesc, Matrix};
use backend_api::{Activation, BackendTranspose, DType, MathMode};

use super::gemm::{SCALES, TRANSPOSES};
use crate::case::Case;
use crate::data::Data;
use crate::grid::pairwise;
use crate::oracle::product::{Element, Stored, scales_exactly, wanted_products};
use crate::rng::Rng;
use crate::trial::Trial;

use DType::{F16, F32};

const SIZES: [usize; 13] = [1, 2, 3, 7, 8, 16, 17, 31, 33, 64, 65, 100, 129];
const DTYPES: [[DType; 3]; 5] =
    [[F32, F32, F32], [F16, F16, F16], [F16, F16, F32], [F32, F16, F32], [F16, F32, F32]];
const BIASES: [Option<BiasAxis>; 3] = [None, Some(BiasAxis::Column), Some(BiasAxis::Row)];
const ACTIVATIONS: &[Activation] = Activation::ALL;

/// What lines of factors are multiplied by where their orders of magnitude should differ.
const ORDERS: [f64; 5] = [1.0, 1.0 / (1u64 << 60) as f64, (1u64 << 59) as f64, 1.0 / 1024.0, 4096.0];

#[derive(Clone, Copy, Debug)]
struct Product {
    dtypes: [DType; 3],
    shape: [usize; 3],
    batch: usize,
    trans: [BackendTranspose; 2],
    ld_extra: usize,
    scale: (f64, f64),
    bias: Option<BiasAxis>,
    activation: Activation,
    data: Data,
    math: MathMode,
}

pub(super) fn cases() -> Vec<Case> {
    let n = SIZES.len();
    let grids = ["matmul 1", "matmul 2", "matmul 3"]
        .map(|seed| pairwise(&[DTYPES.len(), n, n, n, 3, 3, 3, 3, 5, 3, ACTIVATIONS.len(), 2], seed));
    let covering = grids.into_iter().flatten().map(|row| Product {
        dtypes: DTYPES[row[0]],
        shape: [SIZES[row[1]], SIZES[row[2]], SIZES[row[3]]],
        batch: [1, 2, 3][row[4]],
        trans: [TRANSPOSES[row[5]], TRANSPOSES[row[6]]],
        ld_extra: [0, 1, 5][row[7]],
        scale: SCALES[row[8]],
        bias: BIASES[row[9]],
        activation: ACTIVATIONS[row[10]],
        data: [Data::Uniform, Data::Integers][row[11]],
        math: MathMode::Standard,
    });
    covering.chain(edges()).chain(factors()).chain(emulated()).chain(long_sums()).map(Product::case).collect()
}

/// Products whose sizes are those of a kernel's tile and one less or more, or a few tiles, in all layouts.
#[must_use]
pub fn matmul_around(tile: [usize; 3]) -> Vec<Case> {
    // A tile of one row is for one row only.
    let near = tile.map(|size| if size == 1 { [1; 4] } else { [size - 1, size, size + 1, 24] });
    let k = tile[2];
    let depths = [1, 3 * k / 4, 2 * k, 3 * k + 8, 2 * k + 5, 3 * k / 2 + 3];
    let rows = pairwise(&[DTYPES.len(), 4, 4, 6, 2, 4, 3, SCALES.len(), 3, 2], &format!("matmul {tile:?}"));
    let products = rows.into_iter().map(|row| Product {
        dtypes: DTYPES[row[0]],
        shape: [near[0][row[1]], near[1][row[2]], depths[row[3]]],
        batch: [1, 2][row[4]],
        trans: [TRANSPOSES[row[5] % 2], TRANSPOSES[row[5] / 2]],
        ld_extra: [0, 8, 3][row[6]],
        scale: SCALES[row[7]],
        bias: BIASES[row[8]],
        activation: if row[0] == 1 { Activation::Gelu } else { Activation::Identity },
        data: [Data::Uniform, Data::Integers][row[9]],
        // Of other types than f32, it asks for nothing.
        math: if row[0] != 1 && row[4] == 0 { MathMode::EmulatedF32 } else { MathMode::Standard },
    });
    products.map(Product::case).collect()
}

/// A product of f16 operands in whole vectors. `row` chooses the type of C, m, n, k, the number of products, leading
/// dimensions, factors, the bias and the data.
fn of_halves(row: &[usize], [m, n, k]: [&[usize]; 3], trans: [BackendTranspose; 2]) -> Product {
    Product {
        dtypes: [DTYPES[1], DTYPES[2]][row[0]],
        shape: [m[row[1]], n[row[2]], k[row[3]]],
        batch: [1, 2][row[4]],
        trans,
        ld_extra: [0, 8][row[5]],
        scale: SCALES[row[6]],
        bias: BIASES[row[7]],
        activation: if row[0] == 1 { Activation::Gelu } else { Activation::Identity },
        data: [Data::Uniform, Data::Integers][row[8]],
        math: MathMode::Standard,
    }
}

/// Products around the sizes of a tile, for a kernel that needs K-major f16 operands in whole vectors.
#[must_use]
pub fn matmul_along_k(tile: [usize; 3]) -> Vec<Case> {
    let [m, n, k] = tile.map(|size| [size - 1, size, size + 1, 8]);
    let depths = [8, k[1] - 8, k[1], k[1] + 8, 2 * k[1] + 24];
    let rows = pairwise(&[2, 4, 4, 5, 2, 2, SCALES.len(), 3, 2], &format!("matmul along k {tile:?}"));
    let trans = [BackendTranspose::NoTrans, BackendTranspose::Trans];
    rows.iter().map(|row| of_halves(row, [&m, &n, &depths], trans).case()).collect()
}

/// Products around the sizes of a tile, for a kernel that needs f16 operands in whole vectors in any layout.
#[must_use]
pub fn matmul_in_vectors(tile: [usize; 3]) -> Vec<Case> {
    let [m, n, k] = tile.map(|size| [size - 8, size, size + 8, 8]);
    let depths = [8, k[1] - 8, k[1], 2 * k[1] + 24, 2 * k[1] + 5];
    let rows = pairwise(&[2, 4, 4, 5, 2, 4, 2, SCALES.len(), 3, 2], &format!("matmul in vectors {tile:?}"));
    let products = rows.into_iter().map(|mut row| {
        let layout = row.remove(5);
        of_halves(&row, [&m, &n, &depths], [TRANSPOSES[layout % 2], TRANSPOSES[layout / 2]])
    });
    products.map(Product::case).collect()
}

/// Zero extents with a bias and an activation, vectors and long sums of each type.
fn edges() -> impl Iterator<Item = Product> {
    let empty = [[0, 5, 3], [5, 0, 3], [5, 4, 0]];
    let empty = empty.map(|shape| (shape, DTYPES[0], Data::Uniform));
    let long = [[1, 257, 1031], [257, 1, 1031], [3, 65, 2053]];
    let long = DTYPES.map(|dtypes| long.map(|shape| (shape, dtypes, Data::Uniform)));
    let all = empty.into_iter().chain(long.into_iter().flatten());
    all.map(|(shape, dtypes, data)| Product {
        dtypes,
        shape,
        batch: 1,
        trans: [BackendTranspose::NoTrans, BackendTranspose::Trans],
        ld_extra: 0,
        scale: (0.25, 1.0),
        bias: Some(BiasAxis::Column),
        activation: Activation::Gelu,
        data,
        math: MathMode::Standard,
    })
}

/// Factors that aren't finite as f32, of sums of no products, and a beta that is 0 as f32.
fn factors() -> impl Iterator<Item = Product> {
    let of_nothing = [f64::INFINITY, f64::NAN, 1e39].into_iter().flat_map(|alpha| {
        let betas = [0.0, 1.0].into_iter().flat_map(move |beta| DTYPES.map(|dtypes| (dtypes, beta)));
        betas.map(move |(dtypes, beta)| ([5, 4, 0], dtypes, (alpha, beta)))
    });
    let underflowing = DTYPES.map(|dtypes| ([17, 9, 31], dtypes, (1.0, 1e-60)));
    of_nothing.chain(underflowing).map(|(shape, dtypes, scale)| Product {
        dtypes,
        shape,
        batch: 2,
        trans: [BackendTranspose::NoTrans; 2],
        ld_extra: 1,
        scale,
        bias: Some(BiasAxis::Row).filter(|_| scale.1 != 0.0),
        activation: Activation::Identity,
        data: Data::Uniform,
        math: MathMode::Standard,
    })
}

/// Sums longer than 65,535 terms, after which some drivers leave a loop: of one result, of few rows, and of
/// tiles.
fn long_sums() -> impl Iterator<Item = Product> {
    let plain = Product {
        dtypes: DTYPES[0],
        shape: [1, 1, 65_536],
        batch: 1,
        trans: [BackendTranspose::NoTrans; 2],
        ld_extra: 0,
        scale: (1.0, 0.0),
        bias: None,
        activation: Activation::Identity,
        data: Data::Integers,
        math: MathMode::Standard,
    };
    let (trans, f16) = ([BackendTranspose::Trans; 2], DTYPES[1]);
    [
        plain,
        Product { shape: [1, 9, 140_003], trans, ld_extra: 3, ..plain },
        Product { shape: [6, 5, 70_001], batch: 2, scale: SCALES[4], bias: BIASES[2], ..plain },
        Product { shape: [33, 17, 66_000], ..plain },
        Product { shape: [5, 7, 100_001], dtypes: f16, bias: BIASES[1], data: Data::Uniform, ..plain },
    ]
    .into_iter()
}

/// f32 products that may be made of parts, of factors whose rows and columns differ by many orders of magnitude. They are
/// so small that planners make them in f32; a suite that forces kernels has them made of parts.
fn emulated() -> impl Iterator<Item = Product> {
    let rows = pairwise(&[4, 4, 3, 4, 2, 3, 3, 2], "emulated");
    rows.into_iter().map(|row| Product {
        dtypes: DTYPES[0],
        shape: [[16, 65, 70, 130][row[0]], [17, 64, 72, 131][row[1]], [64, 100, 129][row[2]]],
        batch: 1,
        trans: [TRANSPOSES[row[3] % 2], TRANSPOSES[row[3] / 2]],
        ld_extra: [0, 3][row[4]],
        scale: SCALES[[0, 3, 4][row[5]]],
        bias: BIASES[row[6]],
        activation: ACTIVATIONS[row[7]],
        data: Data::Uniform,
        math: MathMode::EmulatedF32,
    })
}

impl Product {
    fn case(self) -> Case {
        let ([m, n, k], batch) = (self.shape, self.batch);
        let dtypes = self.dtypes.map(DType::name).join("-");
        let trans = self.trans.map(BackendTranspose::name).concat();
        let ((alpha, beta), ld, data) = (self.scale, self.ld_extra, self.data.name());
        let bias = match self.bias {
            None => "nobias",
            Some(BiasAxis::Column) => "column",
            Some(BiasAxis::Row) => "row",
        };
        let activation = self.activation.name();
        let math = if self.math == MathMode::Standard { "" } else { "_emulated" };
        let name = format!(
            "{dtypes}_x{batch}_m{m}_n{n}_k{k}_{trans}_ld{ld}_a{alpha}_b{beta}_{bias}_{activation}_{data}{math}"
        );
        Case::new("matmul", name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let ([m, n, k], [a_type, b_type, c_type]) = (self.shape, self.dtypes);
        let (trans, batch) = ([self.trans[0].is_transposed(), self.trans[1].is_transposed()], self.batch);
        let (alpha, beta) = self.scale;
        let mut values = |dtype, count| self.data.values(rng, dtype, count);
        let each = (batch, None);
        let emulated = self.math == MathMode::EmulatedF32;
        let spread = emulated && self.dtypes == DTYPES[0] && self.data == Data::Uniform;
        let mut factor = |dtype, count, line: &dyn Fn(usize) -> usize| {
            let mut values = values(dtype, count);
            if spread {
                values.iter_mut().enumerate().for_each(|(i, value)| *value *= ORDERS[line(i) % ORDERS.len()]);
            }
            values
        };
        let a = Stored::new((m, k), trans[0], self.ld_extra, each, |count| factor(a_type, count, &|i| i / k));
        let b = Stored::new((k, n), trans[1], self.ld_extra, each, |count| factor(b_type, count, &|i| i % n));
        let c = Stored::new((m, n), false, self.ld_extra, each, |count| match beta as f32 {
            0.0 => vec![f64::NAN; count],
            _ => values(c_type, count),
        });
        let bias = self.bias.map(|axis| match axis {
            BiasAxis::Column => (axis, values(c_type, n)),
            BiasAxis::Row => (axis, values(c_type, m)),
        });
        let wants = wanted_products([&a, &b, &c], (self.shape, batch), |i, j| Element {
            alpha,
            beta,
            bias: bias.as_ref().map(|(axis, bias)| match axis {
                BiasAxis::Column => bias[j],
                BiasAxis::Row => bias[i],
            }),
            activation: self.activation,
            exact: self.data == Data::Integers && scales_exactly(F32, alpha, beta),
            // As the mode's documentation states it.
            term_error: if emulated { 2f64.powi(-20) } else { 0.0 },
            ..Element::PLAIN
        });
        let matrix = |ptr, dtype, stored: &Stored| {
            Matrix::new(ptr, dtype, stored.ld).with_batch_stride(stored.batch_stride)
        };
        let desc =
            MatmulDesc::new(m, n, k, matrix(0, a_type, &a), matrix(0, b_type, &b), matrix(0, c_type, &c))
                .with_transpose(self.trans[0], self.trans[1])
                .with_scale(alpha, beta)
                .with_batch(batch)
                .with_activation(self.activation)
                .with_math(self.math);

        let mut trial = Trial::new();
        trial.input("a", a_type, &a.data);
        trial.input("b", b_type, &b.data);
        trial.scattered("c", c_type, c.data, wants);
        if self.data == Data::Uniform && self.activation == Activation::Identity {
            trial.with_nmse();
        }
        let axis = bias.as_ref().map(|(axis, _)| *axis);
        if let Some((_, bias)) = bias {
            trial.input("bias", c_type, &bias);
        }
        trial.calling(move |backend, ptrs| {
            let mut desc = desc;
            (desc.a.ptr, desc.b.ptr, desc.c.ptr) = (ptrs[0], ptrs[1], ptrs[2]);
            if let Some(axis) = axis {
                desc = desc.with_bias(Bias { ptr: ptrs[3], axis });
            }
            backend.matmul(&desc)
        })
    }
}
