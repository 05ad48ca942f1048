//! Calls over quantised matrices, sorts and tokens.

use backend_api::DType;

use super::super::call::QUANT_FORMATS;
use super::super::{Lookup, Rows};
use super::{Author, Call, Slot};

impl Author {
    /// Over any memory: as planes, small numbers of f16 are scales and quants that are whole.
    pub(super) fn quantised(&mut self, [a, b, dst]: [Slot; 3]) -> Call {
        let matrix = match self.rng.below(4) {
            0 => b,
            1 => self.of_f16(b),
            // Of which every byte is known.
            _ => Slot(Slot::SHARED + 2),
        };
        let format = self.rng.below(QUANT_FORMATS.len());
        let of = QUANT_FORMATS[format];
        // Rows of the formats of groups may have any length.
        let block = if of.block_bytes().is_some() { of.block_elements() } else { 8 };
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
                Call::Dequantize { format, matrix: Rows { dtype, src: matrix, dst, rows, columns }, ld }
            }
            1 => {
                let indices = if self.rng.one_in(4) { a } else { Slot(Slot::SHARED + 1) };
                let most = self.fitting(&[(dst, dtype)]) / columns.max(1);
                self.dtypes.insert(dst, dtype);
                let count = self.rng.below(most.min(20) + 2);
                let lookup = Lookup { dtype, table: matrix, indices, dst, rows, columns, count };
                Call::QuantGather { format, lookup }
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
    fn of_f16(&mut self, otherwise: Slot) -> Slot {
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
            let logits = Rows { dtype, src, dst, rows, columns };
            return Call::Sample { logits, cold, window, len };
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

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::super::invoke::{Returned, invoke};
    use super::super::super::run::shared_inputs;
    use super::super::super::{Model, Profile, generate};
    use super::*;

    /// How often the first result of each kind of call was known, of how many successful ones.
    fn known_results() -> HashMap<&'static str, [usize; 2]> {
        let mut counts = HashMap::new();
        for seed in 0..800 {
            let model = Model::default();
            let shared = shared_inputs(&model).unwrap();
            let mut ptrs: HashMap<Slot, u64> = shared.into_iter().map(|(slot, ptr, _)| (slot, ptr)).collect();
            for call in &generate(&format!("known {seed}"), &Profile::plain()).threads[0] {
                let Ok(returned) = invoke(call, &model, &|slot| ptrs.get(&slot).copied().unwrap_or(0)) else {
                    continue;
                };
                if let (Returned::Handle(ptr), Some(slot)) = (returned, call.target()) {
                    ptrs.insert(slot, ptr);
                }
                let (kind, dst, bytes) = match call {
                    Call::TopK { dst, rows, k, .. } => ("top_k", dst, 4 * rows * k),
                    Call::Sample { logits: Rows { dst, rows, .. }, .. } => ("sample", dst, 4 * rows),
                    Call::QuantMatmul { to, c, m, n, .. } => ("quant_matmul", c, to.size() * m * n),
                    Call::QuantGather { lookup: Lookup { dtype, dst, columns, count, .. }, .. } => {
                        ("quant_gather", dst, dtype.size() * columns * count)
                    }
                    Call::Dequantize { matrix: Rows { dtype, dst, rows, .. }, .. } => {
                        ("dequantize", dst, dtype.size() * rows)
                    }
                    _ => continue,
                };
                if bytes > 0 {
                    let known = model.bytes(ptrs[dst], 1).iter().all(|&(_, known)| known == 0xff);
                    let [of, all] = counts.entry(kind).or_default();
                    (*of, *all) = (*of + usize::from(known), *all + 1);
                }
            }
        }
        counts
    }

    /// A model that knows nothing of what an operation gave would agree with everything.
    #[test]
    fn results_of_each_operation_are_known() {
        let counts = known_results();
        for kind in ["top_k", "sample", "quant_matmul", "quant_gather", "dequantize"] {
            let [known, all] = counts.get(kind).copied().unwrap_or_default();
            println!("{kind}: {known} of {all}");
            assert!(all >= 30 && 4 * known >= all, "{kind}: {known} of {all} known");
        }
    }
}
