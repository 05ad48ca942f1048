//! Calls over quantised matrices, sorts and tokens.

use backend_api::DType;

use super::super::call::QUANT_FORMATS;
use super::{Author, Call, Slot};

impl Author {
    /// Over any memory: as planes, small numbers of f16 are scales and quants that are whole.
    pub(super) fn quantised(&mut self, [a, b, dst]: [Slot; 3]) -> Call {
        let matrix = if self.rng.one_in(3) { b } else { self.of_numbers(b) };
        let format = self.rng.below(QUANT_FORMATS.len());
        let of = QUANT_FORMATS[format];
        // Rows of the formats of groups may have any length.
        let block = if format < 5 { of.block_elements() } else { 8 };
        let columns = block * (1 + self.rng.below(if block > 32 { 2 } else { 5 }));
        let len = self.len(matrix).unwrap_or(600);
        let most =
            (1..20).take_while(|&rows| of.bytes(rows, columns).is_ok_and(|bytes| bytes <= len)).count();
        let rows = if self.rng.one_in(20) { most + 1 } else { self.rng.below(most + 1).max(most.min(1)) };
        let dtype = self.rng.pick(&[DType::F32, DType::F32, DType::F16]);
        match self.rng.below(4) {
            0 => {
                let ld = columns + self.rng.below(3);
                self.dtypes.insert(dst, dtype);
                Call::Dequantize { format, dtype, src: matrix, dst, rows, columns, ld }
            }
            1 => {
                let indices = if self.rng.one_in(4) { a } else { Slot(Slot::SHARED + 1) };
                let most = self.fitting(&[(dst, dtype)]) / columns.max(1);
                self.dtypes.insert(dst, dtype);
                let count = self.rng.below(most.min(20) + 2);
                Call::QuantGather { format, dtype, table: matrix, indices, dst, rows, columns, count }
            }
            _ => {
                let from = self.dtypes.get(&a).copied().filter(|dtype| dtype.is_float()).unwrap_or(dtype);
                let most =
                    (self.fitting(&[(a, from)]) / columns).min(self.fitting(&[(dst, dtype)]) / rows.max(1));
                let m = (1 + self.rng.below(most.clamp(1, 9))).min(most.max(1));
                let bias = if self.rng.one_in(3) { Some(self.input()) } else { None };
                let (relu, residual) = (self.rng.one_in(3), self.rng.one_in(3));
                self.dtypes.insert(dst, dtype);
                let (to, n, k) = (dtype, rows, columns);
                Call::QuantMatmul { format, from, to, a, b: matrix, c: dst, bias, m, n, k, relu, residual }
            }
        }
    }

    /// Memory with numbers of f16, or if there is none, `otherwise`.
    fn of_numbers(&mut self, otherwise: Slot) -> Slot {
        let mut of_f16: Vec<Slot> =
            self.dtypes.iter().filter(|(_, dtype)| **dtype == DType::F16).map(|(s, _)| *s).collect();
        of_f16.retain(|&slot| self.len(slot).is_some());
        of_f16.sort_unstable_by_key(|slot| slot.0);
        if of_f16.is_empty() { otherwise } else { self.rng.pick(&of_f16) }
    }

    /// Rows sorted, or the likeliest token of each.
    pub(super) fn ordered(&mut self, dtype: DType, src: Slot, dst: Slot) -> Call {
        let elements = self.fitting(&[(src, dtype)]);
        let columns = 1 + self.rng.below(elements.clamp(1, 300));
        let rows = (elements / columns).min(20);
        if self.rng.one_in(3) {
            let window = if self.rng.one_in(2) { Some(self.input()) } else { None };
            let most = window.and_then(|window| self.len(window)).unwrap_or(0) / (4 * rows.max(1));
            let (cold, len) = (self.rng.one_in(2), self.rng.below(most + 1));
            self.dtypes.insert(dst, DType::I32);
            return Call::Sample { dtype, src, dst, rows, columns, cold, window, len };
        }
        let values = if self.rng.one_in(3) { Some(self.own()) } else { None };
        let most = self.fitting(&[(dst, DType::I32)]) / rows.max(1);
        let k = if self.rng.one_in(3) { columns } else { self.rng.below(columns.min(most) + 1) };
        self.dtypes.insert(dst, DType::I32);
        if let Some(values) = values {
            self.dtypes.insert(values, dtype);
        }
        Call::TopK { dtype, src, dst, values, rows, columns, k, largest: self.rng.one_in(2) }
    }
}
