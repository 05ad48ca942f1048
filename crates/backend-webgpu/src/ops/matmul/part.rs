//! A product that takes long, by blocks of its result.

use std::borrow::Cow;

use backend_api::desc::{BiasAxis, MatmulDesc, Matrix};
use backend_api::{Activation, DType};

use super::Windows;
use crate::device::DeviceProfile;
use crate::ops::shared::long_work::{Divisible, division, middle};
use crate::recorder::{UNBINDABLE, Window};

/// Some matrices of a product, or a block of the rows or columns of one.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) desc: MatmulDesc,
    pub(super) windows: Windows,
    /// Whether C is f32 and gets the sums alone. A piece of a sum that is added to anything else is rounded with it.
    is_sum: bool,
}

impl Divisible for Part {
    fn seconds(&self, profile: &DeviceProfile) -> f64 {
        let halves = self.desc.a.dtype == DType::F16 && self.desc.b.dtype == DType::F16;
        self.desc.flops() / if halves { profile.flops_f16 } else { profile.flops }
    }

    fn halves(&self) -> Option<[Self; 2]> {
        let &MatmulDesc { m, n, batch, .. } = &self.desc;
        Some(if let Some(first) = middle(batch) {
            [self.batches(0, first), self.batches(first, batch - first)]
        } else if m >= n {
            let first = middle(m)?;
            [self.rows(0, first), self.rows(first, m - first)]
        } else {
            let first = middle(n)?;
            [self.columns(0, first), self.columns(first, n - first)]
        })
    }

    fn excess(&self) -> u64 {
        self.excesses().iter().sum()
    }

    /// By matrices of the batch, by rows or columns, or where this makes an operand no smaller, by pieces of the sum
    /// over k. An operand that the whole batch shares gets smaller for all of it.
    fn smaller_halves(&self) -> Option<[Self; 2]> {
        let MatmulDesc { m, n, k, batch, a, b, c, trans_a, trans_b, .. } = self.desc;
        let windows = &self.windows;
        // Rows of the matrices in memory, where a buffer may end between them.
        let [a_by_k, b_by_k] = [trans_a.is_transposed(), !trans_b.is_transposed()];
        let lines = |is_so: bool, matrix: Matrix| if is_so { matrix.ld } else { 0 };
        let [of_m, of_n] = [lines(!a_by_k, a), lines(!b_by_k, b)];
        let rows = || {
            let first = division(m, &[(&windows.a, of_m), (&windows.c, c.ld)])?;
            Some([self.rows(0, first), self.rows(first, m - first)])
        };
        let columns = || {
            let first = division(n, &[(&windows.b, of_n)])?;
            Some([self.columns(0, first), self.columns(first, n - first)])
        };
        let sums = || {
            let first = division(k, &[(&windows.a, lines(a_by_k, a)), (&windows.b, lines(b_by_k, b))])?;
            self.is_sum.then(|| self.sums(first))
        };
        let batches = || {
            let strides =
                [(&windows.a, a.batch_stride), (&windows.b, b.batch_stride), (&windows.c, c.batch_stride)];
            let first = division(batch, &strides)?;
            Some([self.batches(0, first), self.batches(first, batch - first)])
        };
        let by_rows = |matrix: Matrix, rows: usize, columns: usize| {
            rows.saturating_sub(1).saturating_mul(matrix.ld) >= columns / 2
        };
        // A matrix gets smaller by its rows in memory, as far as it has some.
        let [of_a, of_b, of_c, _] = self.excesses();
        // Sums of the whole batch are finished together where they can be.
        let together = !self.is_sum && k > 1 && of_c == 0 && self.folds() && self.sums_fit();
        let rest = || if together { None } else { batches() };
        let undivided = |matrix: Matrix, excess: u64| excess > 0 && (batch == 1 || matrix.batch_stride == 0);
        let by_c = || {
            if batch > 1 || (of_c == 0 && self.sums_fit()) {
                None
            } else if by_rows(c, m, n) {
                rows()
            } else {
                columns()
            }
        };
        if undivided(a, of_a) {
            let k_major = trans_a.is_transposed();
            let (outer, inner) = if k_major { (k, m) } else { (m, k) };
            if k_major == by_rows(a, outer, inner) { sums().or_else(by_c) } else { rows() }.or_else(rest)
        } else if undivided(b, of_b) {
            let n_major = trans_b.is_transposed();
            let (outer, inner) = if n_major { (n, k) } else { (k, n) };
            if n_major == by_rows(b, outer, inner) { columns() } else { sums().or_else(by_c) }.or_else(rest)
        } else {
            batches().or_else(by_c).or_else(|| self.halves())
        }
    }
}

impl Part {
    pub(super) fn new(desc: MatmulDesc, windows: Windows) -> Self {
        let replaces = desc.beta as f32 == 0.0;
        let is_plain = replaces && desc.bias.is_none() && desc.activation == Activation::Identity;
        Self { is_sum: is_plain && desc.c.dtype == DType::F32, desc, windows }
    }

    /// Whether operands are too large until the sums are made by themselves, in pieces, and finished afterwards.
    pub(super) fn needs_sums(&self) -> bool {
        if self.is_sum || self.desc.k <= 1 || (self.desc.batch > 1 && !self.folds()) {
            return false;
        }
        let excess = self.excess();
        excess >= UNBINDABLE || (excess > 0 && self.sums_fit())
    }

    /// Whether the results of the batch follow each other as those of one matrix do, and are finished alike.
    fn folds(&self) -> bool {
        let MatmulDesc { m, c, bias, .. } = self.desc;
        let by_row = bias.is_some_and(|bias| bias.axis == BiasAxis::Row);
        c.batch_stride == m.saturating_mul(c.ld) && !by_row
    }

    /// Whether the sums that C is made of can be bound, where they are made by themselves.
    fn sums_fit(&self) -> bool {
        let MatmulDesc { m, n, batch, .. } = self.desc;
        let bytes = m.saturating_mul(n).saturating_mul(batch).saturating_mul(DType::F32.size());
        self.is_sum || bytes as u64 <= u64::from(self.windows.c.max)
    }

    /// The elements of A, B, C and the bias, from the first to the last one.
    fn elements(&self) -> [usize; 4] {
        let MatmulDesc { m, n, k, batch, a, b, c, trans_a, trans_b, bias, .. } = self.desc;
        let of = |matrix: Matrix, rows: usize, columns: usize| {
            let last = |count: usize, stride: usize| count.saturating_sub(1).saturating_mul(stride);
            last(batch, matrix.batch_stride).saturating_add(last(rows, matrix.ld)).saturating_add(columns)
        };
        [
            if trans_a.is_transposed() { of(a, k, m) } else { of(a, m, k) },
            if trans_b.is_transposed() { of(b, n, k) } else { of(b, k, n) },
            of(c, m, n),
            bias.map_or(0, |bias| if bias.axis == BiasAxis::Row { m } else { n }),
        ]
    }

    fn excesses(&self) -> [u64; 4] {
        let Windows { a, b, bias, c } = &self.windows;
        if ![a, b, bias, c].into_iter().any(Window::is_wide) {
            return [0; 4];
        }
        let [of_a, of_b, of_c, of_bias] = self.elements();
        [a.excess(of_a), b.excess(of_b), c.excess(of_c), bias.excess(of_bias)]
    }

    /// The windows of what the part accesses.
    pub(super) fn bound(&self) -> Cow<'_, Windows> {
        let Windows { a, b, bias, c } = &self.windows;
        if ![a, b, bias, c].into_iter().any(Window::is_wide) {
            return Cow::Borrowed(&self.windows);
        }
        let [of_a, of_b, of_c, of_bias] = self.elements();
        Cow::Owned(Windows {
            a: a.truncated(of_a),
            b: b.truncated(of_b),
            bias: bias.truncated(of_bias),
            c: c.truncated(of_c),
        })
    }

    /// The first `first` products of each sum, and the others on top of these.
    fn sums(&self, first: usize) -> [Self; 2] {
        let MatmulDesc { a, b, k, trans_a, trans_b, .. } = self.desc;
        let from_a = if trans_a.is_transposed() { first * a.ld } else { first };
        let from_b = if trans_b.is_transposed() { first } else { first * b.ld };
        let (mut begun, mut rest) = (self.desc, self.desc);
        begun.k = first;
        (rest.k, rest.beta) = (k - first, 1.0);
        [
            Self { desc: begun, ..self.clone() },
            Self { desc: rest, windows: self.windows([from_a, from_b, 0], 0), ..*self },
        ]
    }

    fn batches(&self, first: usize, batch: usize) -> Self {
        let MatmulDesc { a, b, c, .. } = self.desc;
        let starts = [a, b, c].map(|matrix| first.saturating_mul(matrix.batch_stride));
        let mut desc = self.desc;
        desc.batch = batch;
        Self { desc, windows: self.windows(starts, 0), ..*self }
    }

    /// Rows of each matrix of the batch.
    fn rows(&self, first: usize, m: usize) -> Self {
        let MatmulDesc { a, c, trans_a, bias, .. } = self.desc;
        let from_a = if trans_a.is_transposed() { first } else { first.saturating_mul(a.ld) };
        let along = bias.is_some_and(|bias| bias.axis == BiasAxis::Row);
        let windows = self.windows([from_a, 0, first * c.ld], if along { first } else { 0 });
        let mut desc = self.desc;
        desc.m = m;
        Self { desc, windows, ..*self }
    }

    /// Columns of each matrix of the batch.
    fn columns(&self, first: usize, n: usize) -> Self {
        let MatmulDesc { b, trans_b, bias, .. } = self.desc;
        let from_b = if trans_b.is_transposed() { first.saturating_mul(b.ld) } else { first };
        let along = bias.is_some_and(|bias| bias.axis == BiasAxis::Column);
        let windows = self.windows([0, from_b, first], if along { first } else { 0 });
        let mut desc = self.desc;
        desc.n = n;
        Self { desc, windows, ..*self }
    }

    /// The windows from these elements of A, B, C and the bias on.
    fn windows(&self, [a, b, c]: [usize; 3], bias: usize) -> Windows {
        // Without products, operands have no memory, and leading dimensions and strides may be any numbers.
        let operand = |start| if self.desc.k > 0 { start } else { 0 };
        Windows {
            a: self.windows.a.advanced(operand(a)),
            b: self.windows.b.advanced(operand(b)),
            bias: self.windows.bias.advanced(bias),
            c: self.windows.c.advanced(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use backend_api::desc::Bias;
    use backend_api::{BackendTranspose, DeviceKind};

    use super::*;
    use crate::ops::plans;
    use crate::ops::shared::bound_windows::{self, address};
    use crate::ops::shared::long_work::visit_parts;

    const TRANS: [BackendTranspose; 2] = [BackendTranspose::NoTrans, BackendTranspose::Trans];

    /// Windows of f32 into a buffer for each operand, of which a binding may show `max_bytes`.
    fn windows(max_bytes: u64) -> Windows {
        let backend = plans::of_h200();
        let [a, b, bias, c] = bound_windows::windows(backend.device().unwrap(), max_bytes);
        Windows { a, b, bias, c }
    }

    fn desc(trans: [BackendTranspose; 2], axis: BiasAxis) -> MatmulDesc {
        let matrix = |ld, stride| Matrix::new(1, DType::F32, ld).with_batch_stride(stride);
        MatmulDesc::new(5, 6, 7, matrix(9, 80), matrix(11, 100), matrix(8, 50))
            .with_transpose(trans[0], trans[1])
            .with_bias(Bias { ptr: 1, axis })
            .with_batch(3)
    }

    /// What each result is made of, by its address: the addresses of its factors and of its bias.
    type Results = BTreeMap<u64, (Vec<[u64; 2]>, Option<u64>)>;

    /// Adds what a part makes of what was bound for it.
    fn add(part: &Part, results: &mut Results) {
        let MatmulDesc { m, n, k, batch, a, b, c, trans_a, trans_b, bias, beta, .. } = part.desc;
        let bound = part.bound();
        for (matrix, row, column) in
            (0..batch).flat_map(|i| (0..m).flat_map(move |j| (0..n).map(move |k| (i, j, k))))
        {
            let factors = (0..k).map(|l| {
                let from_a = if trans_a.is_transposed() { l * a.ld + row } else { row * a.ld + l };
                let from_b = if trans_b.is_transposed() { column * b.ld + l } else { l * b.ld + column };
                [
                    address(&bound.a, matrix * a.batch_stride + from_a),
                    address(&bound.b, matrix * b.batch_stride + from_b),
                ]
            });
            let bias =
                bias.map(|bias| address(&bound.bias, if bias.axis == BiasAxis::Row { row } else { column }));
            let result = address(&bound.c, matrix * c.batch_stride + row * c.ld + column);
            let entry = results.entry(result).or_insert((Vec::new(), bias));
            assert!(entry.0.is_empty() || beta == 1.0, "a piece of a sum is added to those before");
            entry.0.extend(factors);
        }
    }

    fn divide(part: &Part, halves: fn(&Part) -> Option<[Part; 2]>, results: &mut Results) -> usize {
        visit_parts(part, halves, &mut |part| add(part, results))
    }

    #[test]
    fn parts_make_what_the_whole_makes() {
        for (max_bytes, a, b) in [64, 1 << 20]
            .into_iter()
            .flat_map(|max| TRANS.map(|a| (max, a)))
            .flat_map(|(max, a)| TRANS.map(|b| (max, a, b)))
        {
            for axis in [BiasAxis::Row, BiasAxis::Column] {
                let desc = desc([a, b], axis);
                let whole = Part::new(desc, windows(max_bytes));
                let [mut expected, mut found] = [Results::new(), Results::new()];
                add(&whole, &mut expected);
                assert_eq!(expected.len(), 3 * 5 * 6);
                assert_eq!(divide(&whole, Part::halves, &mut found), 3 * 5 * 6, "single results");
                assert_eq!(found, expected, "{max_bytes} bytes, {a:?}, {b:?}, {axis:?}");
            }
        }
    }

    /// As long as operands are too large to be bound, a part is divided; sums that nothing is added to in pieces too.
    fn until_bound(part: &Part) -> Option<[Part; 2]> {
        if part.excess() == 0 { None } else { part.smaller_halves() }
    }

    #[test]
    fn parts_of_large_operands_make_what_the_whole_makes() {
        for (a, b) in TRANS.into_iter().flat_map(|a| TRANS.map(|b| (a, b))) {
            // Strides of 0 repeat an operand for the whole batch, which has to be divided within its matrices.
            for (strides, is_sum) in [[80, 100], [0, 100], [80, 0], [0, 0]]
                .into_iter()
                .flat_map(|strides| [true, false].map(|is_sum| (strides, is_sum)))
            {
                let mut desc = desc([a, b], BiasAxis::Column);
                [desc.a.batch_stride, desc.b.batch_stride] = strides;
                if is_sum {
                    desc.bias = None;
                }
                let whole = Part::new(desc, windows(256));
                assert!(whole.excess() >= UNBINDABLE);
                let [mut expected, mut found] = [Results::new(), Results::new()];
                add(&whole, &mut expected);
                assert!(divide(&whole, until_bound, &mut found) > 1);
                assert_eq!(found, expected, "{a:?}, {b:?}, {strides:?}, {is_sum}");
            }
        }
    }

    #[test]
    fn operands_are_too_large_by_what_passes_a_binding() {
        let desc = desc(TRANS, BiasAxis::Column);
        // A: 2 · 80 + 4 · 9 + 7 elements, one of them before; B is transposed: 2 · 100 + 5 · 11 + 7, and two before.
        let part = Part::new(desc, windows(256));
        let too_large = |bytes: u64| UNBINDABLE + bytes.next_multiple_of(16) - 256;
        let expected = [4 + 4 * 203, 8 + 4 * 262, 16 + 4 * (100 + 32 + 6)].map(too_large);
        let [a, b, c, bias] = part.excesses();
        assert_eq!(([a, b, c], bias, part.excess()), (expected, 0, expected.iter().sum::<u64>()));
        assert_eq!(Part::new(desc, windows(1 << 20)).excess(), 0);
    }

    #[test]
    fn sums_are_made_by_themselves_where_that_makes_operands_small_enough() {
        let mut plain = desc(TRANS, BiasAxis::Column).with_batch(1);
        plain.bias = None;
        let scaled = plain.with_scale(1.0, 0.5);
        let needs = |desc, max_bytes| Part::new(desc, windows(max_bytes)).needs_sums();
        assert!(needs(scaled, 64) && !needs(scaled, 1 << 20), "operands that can be bound");
        assert!(!needs(plain, 64), "they are by themselves");
        let mut single = scaled;
        single.k = 1;
        assert!(!needs(single, 64), "nothing to divide");
        // Matrices of the batch with gaps between them aren't finished together, nor are biases by row.
        let mut batch = scaled.with_batch(3);
        assert!(!needs(batch, 64));
        batch.c.batch_stride = 5 * 8;
        assert!(needs(batch, 64));
        assert!(!needs(batch.with_bias(Bias { ptr: 1, axis: BiasAxis::Row }), 64));
    }

    #[test]
    fn sums_are_plain_products_of_f32() {
        let windows = windows(1 << 20);
        let is_sum = |desc: MatmulDesc| Part::new(desc, windows.clone()).is_sum;
        let mut plain = desc(TRANS, BiasAxis::Column);
        assert!(!is_sum(plain), "with a bias");
        plain.bias = None;
        assert!(is_sum(plain) && is_sum(plain.with_scale(2.0, 0.0)));
        assert!(!is_sum(plain.with_scale(1.0, 0.5)), "added to what is there");
        assert!(!is_sum(plain.with_activation(Activation::Relu)));
        plain.c.dtype = DType::F16;
        assert!(!is_sum(plain), "rounded");
    }

    /// Of a B that the whole batch shares and that can't be bound, each half of the batch needs all. So the batch is divided
    /// only where its sums can't be made in pieces of k and finished at once.
    #[test]
    fn a_batch_isnt_divided_whose_sums_are_finished_together() {
        let matrix = |ld, stride| Matrix::new(1, DType::F32, ld).with_batch_stride(stride);
        let desc = MatmulDesc::new(2, 6, 7, matrix(7, 0), matrix(11, 0), matrix(6, 12));
        let desc = desc.with_batch(3).with_scale(1.0, 0.5);
        let windows = windows(256);
        let excesses = |desc: MatmulDesc| Part::new(desc, windows.clone()).excesses().map(|bytes| bytes > 0);
        let batches = |part: Part| {
            let halves = part.smaller_halves()?;
            assert!(halves.iter().all(|half| [half.desc.m, half.desc.n, half.desc.k] == [part.desc.m, 6, 7]));
            Some(halves.map(|half| half.desc.batch))
        };
        let of = |desc: MatmulDesc| batches(Part::new(desc, windows.clone()));
        assert_eq!((excesses(desc), of(desc)), ([false, true, false, false], None));
        let mut apart = desc;
        apart.c.batch_stride = 13;
        assert_eq!(of(apart), Some([1, 2]), "matrices with a gap between them");
        assert_eq!(of(desc.with_bias(Bias { ptr: 1, axis: BiasAxis::Row })), Some([1, 2]), "a bias by row");
        assert_eq!(of(desc.with_bias(Bias { ptr: 1, axis: BiasAxis::Column })), None);
        let mut large = desc;
        large.c = matrix(40, 80);
        assert_eq!((excesses(large), of(large)), ([false, true, true, false], Some([1, 2])), "a large C");
        // Results of f16 that can be bound, whose sums of f32 can't.
        let mut halves = desc;
        (halves.m, halves.c.batch_stride, halves.c.dtype) = (4, 24, DType::F16);
        let part =
            Part::new(halves, Windows { c: Window { item: 2, ..windows.c.clone() }, ..windows.clone() });
        assert_eq!((part.excesses()[2], batches(part)), (0, Some([1, 2])));
    }

    /// Two rows of A are divided, and a single one within itself.
    #[test]
    fn an_operand_is_divided_where_that_makes_it_smaller() {
        let matrix = |ld| Matrix::new(1, DType::F32, ld);
        let halves = |desc: MatmulDesc| {
            let part = Part::new(desc, windows(256));
            let halves = part.smaller_halves().unwrap();
            assert!(halves.iter().all(|half| half.excess() < part.excess()), "{desc:?}");
            halves.map(|Part { desc: MatmulDesc { m, n, k, .. }, .. }| [m, n, k])
        };
        let of_rows = |m| MatmulDesc::new(m, 1, 1000, matrix(1000), matrix(1), matrix(1));
        assert_eq!(halves(of_rows(1)), [[1, 1, 448], [1, 1, 552]]);
        let bias = Bias { ptr: 1, axis: BiasAxis::Column };
        assert_eq!(halves(of_rows(2).with_bias(bias)), [[1, 1, 1000]; 2]);
        assert_eq!(halves(of_rows(2)), [[1, 1, 1000]; 2]);
    }

    #[test]
    fn biases_have_a_number_for_each_row_or_column() {
        let matrix = |ld| Matrix::new(1, DType::F32, ld);
        let desc = MatmulDesc::new(100, 1, 1, matrix(1), matrix(1), matrix(1));
        let excess = |axis| Part::new(desc.with_bias(Bias { ptr: 1, axis }), windows(256)).excesses()[3];
        assert_eq!([BiasAxis::Row, BiasAxis::Column].map(|axis| excess(axis) > 0), [true, false]);
    }

    #[test]
    fn the_time_is_that_of_the_products() {
        let profile = DeviceProfile::of(DeviceKind::DiscreteGpu, true);
        let mut desc = desc(TRANS, BiasAxis::Column);
        let seconds = |desc: MatmulDesc| Part::new(desc, windows(1 << 20)).seconds(&profile);
        let flops = desc.flops();
        assert!(flops >= 2.0 * 3.0 * 5.0 * 6.0 * 7.0 && profile.flops != profile.flops_f16);
        assert_eq!(seconds(desc), flops / profile.flops);
        desc.b.dtype = DType::F16;
        assert_eq!(seconds(desc), flops / profile.flops, "of f32 and f16");
        desc.a.dtype = DType::F16;
        assert_eq!(seconds(desc), flops / profile.flops_f16);
    }
}
