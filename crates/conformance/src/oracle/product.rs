//! Matrix products.

use backend_api::desc::{BiasAxis, MatmulDesc, Matrix};
use backend_api::{Activation, DType, MathMode};

use super::expected::{Bytes, Expected};
use super::unary::activation;
use crate::float::{MIN_NORMAL_F32, gamma};
use crate::want::Want;

/// A sum of products, with what its error depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Products {
    sum: f64,
    magnitude: f64,
    count: usize,
}

impl Products {
    pub(crate) fn add(&mut self, a: f64, b: f64) {
        let term = a * b;
        self.sum += term;
        self.magnitude += term.abs();
        self.count += 1;
    }
}

/// One element of `activation(alpha · Σ aₚ·bₚ + beta · c + bias)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element {
    pub(crate) alpha: f64,
    pub(crate) beta: f64,
    /// The previous C; not looked at when `beta` is 0.
    pub(crate) c: f64,
    pub(crate) bias: Option<f64>,
    pub(crate) activation: Activation,
    /// Whether every intermediate result is a small integer or half of one, so that nothing is rounded.
    pub(crate) exact: bool,
    /// The relative error of a single product, beyond its own rounding.
    pub(crate) term_error: f64,
}

/// The alpha of a sum of `k` products, in f32 as devices have it: of no products it is 0, also where it would be infinite.
pub(crate) fn factor(alpha: f64, k: usize) -> f64 {
    if k == 0 { 0.0 } else { f64::from(alpha as f32) }
}

impl Element {
    /// The product alone.
    pub(crate) const PLAIN: Self = Self {
        alpha: 1.0,
        beta: 0.0,
        c: 0.0,
        bias: None,
        activation: Activation::Identity,
        exact: false,
        term_error: 0.0,
    };

    /// The result for the terms aₚ·bₚ.
    ///
    /// A term passes through its own multiplication, at most k − 1 additions, the multiplication by alpha and
    /// the additions of beta·C and of the bias, which makes γ(k + 3) of |alpha|·Σ|aₚ·bₚ| in any order of
    /// summation; beta·C passes through a multiplication and two additions, the bias through one. Each
    /// product may also be flushed to zero.
    pub(crate) fn want(&self, terms: impl Iterator<Item = (f64, f64)>) -> Want {
        let mut sum = Products::default();
        terms.for_each(|(a, b)| sum.add(a, b));
        self.of_sum(sum)
    }

    /// [`want`](Self::want) for terms that are added up already.
    pub(crate) fn of_sum(&self, Products { sum, magnitude, count: k }: Products) -> Want {
        let (alpha, beta) = (factor(self.alpha, k), f64::from(self.beta as f32));
        let previous = if beta == 0.0 { 0.0 } else { beta * self.c };
        let bias = self.bias.unwrap_or(0.0);
        let value = alpha * sum + previous + bias;
        let bound = if self.exact {
            0.0
        } else {
            let flushed = (k + 3) as f64 * MIN_NORMAL_F32 * alpha.abs();
            (gamma(k + 3) + self.term_error) * alpha.abs() * magnitude
                + gamma(3) * (previous.abs() + bias.abs())
                + flushed
        };
        activation(self.activation, value, bound)
    }
}

/// A matrix, or a batch of them, as stored.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// The elements, NaN in the padding: an operation that reads there shows it.
    pub(crate) data: Vec<f64>,
    pub(crate) ld: usize,
    pub(crate) batch_stride: usize,
    transposed: bool,
}

impl Stored {
    /// `batch` matrices of `rows` × `columns` as read, filled by `fill` as if packed.
    pub(crate) fn new(
        (rows, columns): (usize, usize),
        transposed: bool,
        ld_extra: usize,
        (batch, batch_stride): (usize, Option<usize>),
        fill: impl FnOnce(usize) -> Vec<f64>,
    ) -> Self {
        let (stored_rows, stored_columns) = if transposed { (columns, rows) } else { (rows, columns) };
        let ld = stored_columns.max(1) + ld_extra;
        let batch_stride = batch_stride.unwrap_or(stored_rows * ld);
        let mut stored = Self { data: Vec::new(), ld, batch_stride, transposed };
        let count = batch * rows * columns;
        if count > 0 {
            let last = stored.index(batch - 1, rows - 1, columns - 1);
            stored.data = vec![f64::NAN; last + 1];
            let values = fill(count);
            for (i, value) in values.into_iter().enumerate() {
                let (row, column) = (i / columns % rows, i % columns);
                let index = stored.index(i / columns / rows, row, column);
                stored.data[index] = value;
            }
        }
        stored
    }

    /// Where element (row, column) of matrix `batch` lies.
    pub(crate) fn index(&self, batch: usize, row: usize, column: usize) -> usize {
        let (row, column) = if self.transposed { (column, row) } else { (row, column) };
        batch * self.batch_stride + row * self.ld + column
    }

    pub(crate) fn at(&self, batch: usize, row: usize, column: usize) -> f64 {
        self.data[self.index(batch, row, column)]
    }
}

/// What every element of C should be, with its place there, for a batch of products of `[m, n, k]`. `element` has what a
/// row and a column of them are made of besides A, B and the previous C.
pub(crate) fn wanted_products(
    [a, b, c]: [&Stored; 3],
    ([m, n, k], batch): ([usize; 3], usize),
    element: impl Fn(usize, usize) -> Element,
) -> Vec<(usize, Want)> {
    let want = |number: usize| {
        let (at, i, j) = (number / n / m, number / n % m, number % n);
        let element = Element { c: c.at(at, i, j), ..element(i, j) };
        let terms = (0..k).map(|p| (a.at(at, i, p), b.at(at, p, j)));
        (c.index(at, i, j), element.want(terms))
    };
    (0..batch * m * n).map(want).collect()
}

/// Whether sums of products of this type of small integers are exact however they are scaled by these
/// factors.
pub(crate) fn scales_exactly(dtype: DType, alpha: f64, beta: f64) -> bool {
    dtype == DType::F32 && (alpha * 2.0).fract() == 0.0 && (beta * 2.0).fract() == 0.0
}

/// `lines` lines of `length` numbers of a matrix, each packed: its rows, or its columns if `across`.
pub(super) fn lines(
    numbers: &[f64],
    start: usize,
    ld: usize,
    across: bool,
    [lines, length]: [usize; 2],
) -> Vec<f64> {
    let at = |line: usize, i: usize| if across { i * ld + line } else { line * ld + i };
    (0..lines * length).map(|n| numbers[start + at(n / length, n % length)]).collect()
}

pub(super) fn expect_matmul(desc: &MatmulDesc, memory: &Bytes) -> Expected {
    let &MatmulDesc { m, n, k, a, b, c, alpha, beta, .. } = desc;
    let numbers = |matrix: Matrix| memory.numbers(matrix.ptr, matrix.dtype);
    let (a_all, b_all, c_all) = (numbers(a), numbers(b), numbers(c));
    let bias = memory.optional(desc.bias.map(|bias| bias.ptr), c.dtype);
    // As the mode's documentation states it.
    let term_error = if desc.math == MathMode::EmulatedF32 { 2f64.powi(-20) } else { 0.0 };
    let mut places = Vec::with_capacity(desc.batch * m * n);
    for batch in 0..desc.batch {
        let start = |matrix: Matrix| matrix.offset + batch * matrix.batch_stride;
        let rows = lines(&a_all, start(a), a.ld, desc.trans_a.is_transposed(), [m, k]);
        let columns = lines(&b_all, start(b), b.ld, !desc.trans_b.is_transposed(), [n, k]);
        for at in 0..m * n {
            let (i, j) = (at / n, at % n);
            let place = start(c) + i * c.ld + j;
            let bias = desc.bias.map(|given| bias[if given.axis == BiasAxis::Row { i } else { j }]);
            let activation = desc.activation;
            let element =
                Element { alpha, beta, c: c_all[place], bias, activation, exact: false, term_error };
            let mut sum = Products::default();
            let pairs = rows[i * k..][..k].iter().zip(&columns[j * k..][..k]);
            pairs.for_each(|(&a, &b)| sum.add(a, b));
            places.push((place, element.of_sum(sum)));
        }
    }
    Expected::computed(c.ptr, c.dtype, places)
}
