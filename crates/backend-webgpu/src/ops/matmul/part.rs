//! A product that takes long, by blocks of its result.

use backend_api::DType;
use backend_api::desc::{BiasAxis, MatmulDesc};

use super::Windows;
use crate::device::DeviceProfile;
use crate::ops::shared::long_work::{Divisible, middle};

/// Some matrices of a product, or a block of the rows or columns of one.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) desc: MatmulDesc,
    pub(super) windows: Windows,
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
}

impl Part {
    fn batches(&self, first: usize, batch: usize) -> Self {
        let MatmulDesc { a, b, c, .. } = self.desc;
        let starts = [a, b, c].map(|matrix| first * matrix.batch_stride);
        let mut desc = self.desc;
        desc.batch = batch;
        Self { desc, windows: self.windows(starts, 0) }
    }

    /// Rows of one matrix of the batch.
    fn rows(&self, first: usize, m: usize) -> Self {
        let MatmulDesc { a, c, trans_a, bias, .. } = self.desc;
        let from_a = if trans_a.is_transposed() { first } else { first * a.ld };
        let along = bias.is_some_and(|bias| bias.axis == BiasAxis::Row);
        let windows = self.windows([from_a, 0, first * c.ld], if along { first } else { 0 });
        let mut desc = self.desc;
        desc.m = m;
        Self { desc, windows }
    }

    /// Columns of one matrix of the batch.
    fn columns(&self, first: usize, n: usize) -> Self {
        let MatmulDesc { b, trans_b, bias, .. } = self.desc;
        let from_b = if trans_b.is_transposed() { first * b.ld } else { first };
        let along = bias.is_some_and(|bias| bias.axis == BiasAxis::Column);
        let windows = self.windows([0, from_b, first], if along { first } else { 0 });
        let mut desc = self.desc;
        desc.n = n;
        Self { desc, windows }
    }

    /// The windows from these elements of A, B, C and the bias on.
    fn windows(&self, [a, b, c]: [usize; 3], bias: usize) -> Windows {
        // Without products, operands have no memory.
        let operand = |start| if self.desc.k > 0 { start } else { 0 };
        Windows {
            a: self.windows.a.advanced(operand(a)),
            b: self.windows.b.advanced(operand(b)),
            bias: self.windows.bias.advanced(bias),
            c: self.windows.c.advanced(c),
        }
    }
}
