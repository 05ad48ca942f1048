//! `gemm`: f32 products of every shape, transposition, leading dimension and scale.

use backend_api::{BackendTranspose, DType};

use crate::case::Case;
use crate::data::Data;
use crate::grid::pairwise;
use crate::oracle::product::{Element, Stored, scales_exactly, wanted_products};
use crate::rng::Rng;
use crate::trial::Trial;

const SIZES: [usize; 17] = [0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129];
const LD_EXTRAS: [usize; 3] = [0, 1, 5];
/// The factors alpha and beta. C holds NaN where beta is 0.
pub(super) const SCALES: [(f64, f64); 5] = [(1.0, 0.0), (0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (-0.5, 2.0)];
pub(super) const TRANSPOSES: &[BackendTranspose] = BackendTranspose::ALL;
const DATA: [Data; 3] = [Data::Uniform, Data::Integers, Data::Cancelling];

/// The arguments of one product.
#[derive(Clone, Copy, Debug)]
struct Product {
    shape: [usize; 3],
    trans: [BackendTranspose; 2],
    ld_extra: [usize; 3],
    scale: (f64, f64),
    data: Data,
}

pub(super) fn cases() -> Vec<Case> {
    let n = SIZES.len();
    let grids = ["gemm 1", "gemm 2", "gemm 3"].map(|seed| pairwise(&[n, n, n, 3, 3, 3, 3, 3, 5, 3], seed));
    let covering = grids.into_iter().flatten().map(|row| Product {
        shape: [SIZES[row[0]], SIZES[row[1]], SIZES[row[2]]],
        trans: [TRANSPOSES[row[3]], TRANSPOSES[row[4]]],
        ld_extra: [LD_EXTRAS[row[5]], LD_EXTRAS[row[6]], LD_EXTRAS[row[7]]],
        scale: SCALES[row[8]],
        data: DATA[row[9]],
    });
    covering
        .chain(long())
        .chain(underflowing())
        .chain(factors_of_nothing())
        .map(Product::case)
        .chain([shared_inputs()])
        .collect()
}

/// Vectors longer than a grid of 65,535 workgroups is wide, and long sums.
fn long() -> impl Iterator<Item = Product> {
    let shapes = [
        [1, 1, 4099],
        [257, 1, 4099],
        [1, 257, 4099],
        [5, 3, 10_007],
        [1, 70_000, 1],
        [1, 70_000, 3],
        [70_000, 1, 1],
        [70_000, 1, 2],
        [257, 129, 33],
        [129, 257, 65],
    ];
    let transposed = [BackendTranspose::NoTrans, BackendTranspose::Trans];
    let choices = transposed.map(|trans| shapes.map(|shape| (shape, trans)));
    choices.into_iter().flatten().map(|(shape, trans)| Product {
        shape,
        trans: [trans, trans],
        ld_extra: [0, 1, 0],
        scale: (-0.5, 2.0),
        data: Data::Uniform,
    })
}

/// A beta that is 0 as f32, with which C isn't read, and an alpha that is.
fn underflowing() -> impl Iterator<Item = Product> {
    [(1.0, 1e-60), (1e-60, 1.0)].into_iter().map(|scale| Product {
        shape: [17, 33, 31],
        trans: [BackendTranspose::NoTrans; 2],
        ld_extra: [0, 1, 0],
        scale,
        data: Data::Uniform,
    })
}

/// Sums of no products, which are 0 times an alpha that isn't finite as f32, too.
fn factors_of_nothing() -> impl Iterator<Item = Product> {
    let scales = [f64::INFINITY, f64::NAN, 1e39].into_iter().flat_map(|alpha| [(alpha, 2.0), (alpha, 0.0)]);
    scales.flat_map(|scale| {
        [[1, 2, 0], [17, 33, 0]].map(|shape| Product {
            shape,
            trans: [BackendTranspose::NoTrans; 2],
            ld_extra: [0, 1, 0],
            scale,
            data: Data::Uniform,
        })
    })
}

impl Product {
    fn case(self) -> Case {
        let [m, n, k] = self.shape;
        let [a, b, c] = self.ld_extra;
        let trans = self.trans.map(BackendTranspose::name).concat();
        let ((alpha, beta), data) = (self.scale, self.data.name());
        let name = format!("m{m}_n{n}_k{k}_{trans}_ld{a}-{b}-{c}_a{alpha}_b{beta}_{data}");
        Case::new("gemm", name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let [m, n, k] = self.shape;
        let [trans_a, trans_b] = self.trans;
        // As the device has them.
        let [alpha, beta] = <[f64; 2]>::from(self.scale).map(|scale| f64::from(scale as f32));
        let mut values = |count| self.data.values(rng, DType::F32, count);
        let one = (1, None);
        let a = Stored::new((m, k), trans_a.is_transposed(), self.ld_extra[0], one, &mut values);
        let b = Stored::new((k, n), trans_b.is_transposed(), self.ld_extra[1], one, &mut values);
        let c = Stored::new((m, n), false, self.ld_extra[2], one, |count| match beta {
            0.0 => vec![f64::NAN; count],
            _ => values(count),
        });
        let exact = self.data == Data::Integers && scales_exactly(DType::F32, alpha, beta);
        let element = Element { alpha, beta, exact, ..Element::PLAIN };
        let wants = wanted_products([&a, &b, &c], (self.shape, 1), |_, _| element);
        let (lda, ldb, ldc) = (a.ld, b.ld, c.ld);
        let mut trial = Trial::new();
        trial.input("a", DType::F32, &a.data);
        trial.input("b", DType::F32, &b.data);
        trial.scattered("c", DType::F32, c.data, wants);
        if self.data == Data::Uniform {
            trial.with_nmse();
        }
        trial.calling(move |backend, ptrs| {
            let (a, b, c) = (ptrs[0], ptrs[1], ptrs[2]);
            backend.gemm(trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
        })
    }
}

/// A·Aᵀ with one handle for both factors.
fn shared_inputs() -> Case {
    Case::new("gemm", "same_handle_for_a_and_b", |rng| {
        let (m, k) = (19, 23);
        let a = Data::Integers.values(rng, DType::F32, m * k);
        let element = Element { exact: true, ..Element::PLAIN };
        let wants =
            (0..m * m).map(|i| element.want((0..k).map(|p| (a[i / m * k + p], a[i % m * k + p])))).collect();
        let mut trial = Trial::new();
        trial.input("a", DType::F32, &a);
        trial.output("c", DType::F32, wants);
        trial.calling(move |backend, ptrs| {
            let (a, c) = (ptrs[0], ptrs[1]);
            let (no, yes) = (BackendTranspose::NoTrans, BackendTranspose::Trans);
            backend.gemm(no, yes, m, m, k, 1.0, a, k, a, k, 0.0, c, m)
        })
    })
}
