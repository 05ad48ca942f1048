//! `batched_gemm`: matrices side by side, with gaps, repeated and interleaved.

use backend_api::{BackendTranspose, DType};

use super::gemm::{SCALES, TRANSPOSES};
use crate::case::Case;
use crate::data::Data;
use crate::grid::pairwise;
use crate::oracle::product::{Element, Stored, scales_exactly, wanted_products};
use crate::rng::Rng;
use crate::trial::Trial;

const SIZES: [usize; 8] = [0, 1, 2, 5, 16, 17, 33, 64];
const BATCHES: [usize; 5] = [0, 1, 2, 3, 7];

/// Where the matrices of an operand start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spacing {
    /// One behind the other.
    Packed,
    /// With unused elements between them.
    Gaps,
    /// All in the same place: an input that is repeated.
    Repeated,
    /// Row by row: row i of every matrix, then row i + 1 of every matrix.
    Interleaved,
}

const INPUTS: [Spacing; 4] = [Spacing::Packed, Spacing::Gaps, Spacing::Repeated, Spacing::Interleaved];
const OUTPUTS: [Spacing; 3] = [Spacing::Packed, Spacing::Gaps, Spacing::Interleaved];

#[derive(Clone, Copy, Debug)]
struct Batch {
    shape: [usize; 3],
    count: usize,
    trans: [BackendTranspose; 2],
    spacing: [Spacing; 3],
    scale: (f64, f64),
    data: Data,
}

pub(super) fn cases() -> Vec<Case> {
    let grids = ["batched 1", "batched 2", "batched 3"]
        .map(|seed| pairwise(&[8, 8, 8, 5, 3, 3, 4, 4, 3, 5, 2], seed));
    let covering = grids.into_iter().flatten().map(|row| Batch {
        shape: [SIZES[row[0]], SIZES[row[1]], SIZES[row[2]]],
        count: BATCHES[row[3]],
        trans: [TRANSPOSES[row[4]], TRANSPOSES[row[5]]],
        spacing: [INPUTS[row[6]], INPUTS[row[7]], OUTPUTS[row[8]]],
        scale: SCALES[row[9]],
        data: [Data::Uniform, Data::Integers][row[10]],
    });
    // More matrices than a grid of workgroups is wide.
    let many = [[1, 1, 2], [1, 2, 1], [2, 1, 1]].map(|shape| Batch {
        shape,
        count: 65_600,
        trans: [BackendTranspose::NoTrans, BackendTranspose::NoTrans],
        spacing: [Spacing::Packed, Spacing::Repeated, Spacing::Packed],
        scale: (1.0, 0.0),
        data: Data::Uniform,
    });
    covering.chain(many).map(Batch::case).collect()
}

impl Batch {
    fn case(self) -> Case {
        let ([m, n, k], count) = (self.shape, self.count);
        let trans = self.trans.map(BackendTranspose::name).concat();
        let [a, b, c] = self.spacing;
        let ((alpha, beta), data) = (self.scale, self.data.name());
        let spacing = format!("{a:?}-{b:?}-{c:?}").to_lowercase();
        let name = format!("x{count}_m{m}_n{n}_k{k}_{trans}_{spacing}_a{alpha}_b{beta}_{data}");
        Case::new("batched_gemm", name, move |rng| self.trial(rng))
    }

    fn trial(self, rng: &mut Rng) -> Trial {
        let ([m, n, k], count) = (self.shape, self.count);
        let [trans_a, trans_b] = self.trans;
        let (alpha, beta) = self.scale;
        let mut values = |count| self.data.values(rng, DType::F32, count);
        let a = self.stored(0, (m, k), trans_a.is_transposed(), &mut values);
        let b = self.stored(1, (k, n), trans_b.is_transposed(), &mut values);
        let c = self.stored(2, (m, n), false, |count| match beta {
            0.0 => vec![f64::NAN; count],
            _ => values(count),
        });
        let exact = self.data == Data::Integers && scales_exactly(DType::F32, alpha, beta);
        let element = Element { alpha, beta, exact, ..Element::PLAIN };
        let wants = wanted_products([&a, &b, &c], (self.shape, count), |_, _| element);
        let (lda, ldb, ldc) = (a.ld, b.ld, c.ld);
        let strides = [a.batch_stride, b.batch_stride, c.batch_stride];
        let mut trial = Trial::new();
        trial.input("a", DType::F32, &a.data);
        trial.input("b", DType::F32, &b.data);
        trial.scattered("c", DType::F32, c.data, wants);
        trial.calling(move |backend, ptrs| {
            let (a, b, c) = (ptrs[0], ptrs[1], ptrs[2]);
            let [stride_a, stride_b, stride_c] = strides;
            backend.batched_gemm(
                trans_a, trans_b, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc, stride_c,
                count,
            )
        })
    }

    fn stored(
        &self,
        operand: usize,
        shape: (usize, usize),
        transposed: bool,
        fill: impl FnOnce(usize) -> Vec<f64>,
    ) -> Stored {
        let columns = if transposed { shape.0 } else { shape.1 };
        let rows = if transposed { shape.1 } else { shape.0 };
        let (ld_extra, stride) = match self.spacing[operand] {
            Spacing::Packed => (0, None),
            Spacing::Gaps => (1, Some(rows * (columns + 1) + 3)),
            Spacing::Repeated => (0, Some(0)),
            Spacing::Interleaved => (columns * self.count.saturating_sub(1), Some(columns)),
        };
        Stored::new(shape, transposed, ld_extra, (self.count, stride), fill)
    }
}
