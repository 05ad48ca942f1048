//! Calls of operations on numbers.

use backend_api::{BinaryOp, CompareOp, DType, ReduceOp, ScatterOp, UnaryOp};

use super::super::{Axis, Call, Lookup, Rows, Slot};
use super::Author;

impl Author {
    /// Small extents with at most `elements` elements, or a few more.
    fn shape(&mut self, elements: usize) -> [usize; 3] {
        let inner = 1 + self.rng.below(elements.clamp(1, 9));
        let middle = 1 + self.rng.below((elements / inner).clamp(1, 300));
        let outer = (elements / inner / middle).min(40) + self.rng.below(30) / 29;
        let mut shape = [outer, middle, inner];
        if self.rng.one_in(3) {
            shape.reverse();
        }
        shape
    }

    pub(super) fn compute(&mut self) -> Call {
        let (a, b, dst) = (self.input(), self.input(), self.own());
        let dtype = self.dtype(a);
        let call = match self.rng.below(22) {
            18 => return self.ordered(dtype, a, dst),
            19..=21 => return self.quantised([a, b, dst]),
            0 | 1 => {
                let op = self.rng.pick(&[
                    UnaryOp::Relu,
                    UnaryOp::Abs,
                    UnaryOp::Neg,
                    UnaryOp::Square,
                    UnaryOp::Sign,
                    UnaryOp::Floor,
                    UnaryOp::Trunc,
                    UnaryOp::ThresholdedRelu,
                    UnaryOp::Shrink,
                    UnaryOp::BitNot,
                ]);
                Call::Unary { op, dtype, src: a, dst, n: self.fitting(&[(a, dtype), (dst, dtype)]) }
            }
            2..=4 => self.binary(dtype, [a, b, dst]),
            5 => {
                let op = self.rng.pick(CompareOp::ALL);
                let n = self.fitting(&[(a, dtype), (b, dtype), (dst, DType::U32)]);
                self.dtypes.insert(dst, DType::U32);
                return Call::Compare { op, dtype, a, b, dst, n };
            }
            6 => {
                let condition = self.input();
                let n = self.fitting(&[(condition, DType::U32), (a, dtype), (b, dtype), (dst, dtype)]);
                Call::Where { dtype, condition, a, b, dst, n }
            }
            7 => {
                let (min, max) = (self.rng.below(5) as i64 - 3, self.rng.below(5) as i64);
                Call::Clamp { dtype, src: a, dst, n: self.fitting(&[(a, dtype), (dst, dtype)]), min, max }
            }
            8 => {
                let (scale, bias) = (self.rng.below(5) as i64 - 2, self.rng.below(5) as i64 - 2);
                Call::Affine { dtype, src: a, dst, n: self.fitting(&[(a, dtype), (dst, dtype)]), scale, bias }
            }
            9 => self.copy(dtype, a, dst),
            10 | 11 => {
                let ops = [
                    ReduceOp::Sum,
                    ReduceOp::Max,
                    ReduceOp::Min,
                    ReduceOp::Prod,
                    ReduceOp::Any,
                    ReduceOp::All,
                    ReduceOp::ArgMax,
                    ReduceOp::ArgMin,
                ];
                let elements = self.fitting(&[(a, dtype)]);
                let (op, shape, axis) = (self.rng.pick(&ops), self.shape(elements), self.rng.below(3));
                Call::Reduce { op, along: Axis { dtype, src: a, dst, shape, axis } }
            }
            12 => {
                let elements = self.fitting(&[(a, dtype), (dst, dtype)]);
                let (shape, axis) = (self.shape(elements), self.rng.below(3));
                let (exclusive, reverse) = (self.rng.one_in(2), self.rng.one_in(2));
                Call::Cumsum { along: Axis { dtype, src: a, dst, shape, axis }, exclusive, reverse }
            }
            13 | 14 => {
                let [m, n, k] = std::array::from_fn(|_| 1 + self.rng.below(9));
                let k = if self.rng.one_in(12) { 0 } else { k * (1 + self.rng.below(3)) };
                let transposed = [self.rng.one_in(3), self.rng.one_in(3)];
                let beta = self.rng.pick(&[0, 0, 1, -1, 2]);
                Call::Matmul { dtype, a, b, c: dst, m, n, k, transposed, beta }
            }
            15 => self.indexed(dtype, [a, b, dst]),
            _ => self.movement(dtype, [a, b, dst]),
        };
        self.dtypes.insert(dst, dtype);
        call
    }

    fn binary(&mut self, dtype: DType, [a, b, dst]: [Slot; 3]) -> Call {
        let ops = [
            BinaryOp::Add,
            BinaryOp::Sub,
            BinaryOp::Mul,
            BinaryOp::Max,
            BinaryOp::Min,
            BinaryOp::Add,
            BinaryOp::Div,
            BinaryOp::Rem,
            BinaryOp::Mod,
            BinaryOp::Prelu,
            BinaryOp::BitAnd,
            BinaryOp::BitOr,
            BinaryOp::BitXor,
            BinaryOp::Shl,
            BinaryOp::Shr,
        ];
        let op = self.rng.pick(&ops);
        let broadcast = self.rng.one_in(3);
        let elements = self.fitting(&[(a, dtype), (dst, dtype)]);
        let most = self.fitting(&[(b, dtype)]).clamp(1, 200);
        let columns = 1 + self.rng.below(most);
        let (rows, columns) = if broadcast { (elements / columns, columns) } else { (1, elements) };
        Call::Binary { op, dtype, a, b, dst, rows, columns, broadcast }
    }

    fn copy(&mut self, from: DType, src: Slot, dst: Slot) -> Call {
        let to = if self.rng.one_in(2) { from } else { self.dtype(dst) };
        let columns = 1 + self.rng.below(20);
        let ld = columns + self.rng.below(3);
        let rows = self.fitting(&[(src, from), (dst, to)]) / ld;
        Call::Copy { dst, src, from, to, rows, columns, ld, transposed: self.rng.one_in(2) }
    }

    fn indexed(&mut self, dtype: DType, [a, b, dst]: [Slot; 3]) -> Call {
        let indices = if self.rng.one_in(4) { b } else { Slot(Slot::SHARED + 1) };
        let columns = 1 + self.rng.below(8);
        let count = self.rng.below(40);
        if self.rng.one_in(2) {
            let rows = self.fitting(&[(a, dtype)]) / columns;
            return Call::Gather(Lookup { dtype, table: a, indices, dst, rows, columns, count });
        }
        let ops = [ScatterOp::Assign, ScatterOp::Add, ScatterOp::Mul, ScatterOp::Max, ScatterOp::Min];
        let (op, from) = (self.rng.pick(&ops), dtype);
        // What is put into a table of the other floating-point type is converted.
        let dtype = match from {
            DType::F32 if op == ScatterOp::Assign && self.rng.one_in(2) => DType::F16,
            DType::F16 if op == ScatterOp::Assign && self.rng.one_in(2) => DType::F32,
            _ => from,
        };
        let rows = self.fitting(&[(dst, dtype)]) / columns;
        Call::Scatter { op, dtype, from, table: dst, indices, src: a, rows, columns, count }
    }

    fn movement(&mut self, dtype: DType, [a, b, dst]: [Slot; 3]) -> Call {
        let n = self.fitting(&[(a, dtype), (dst, dtype)]);
        match self.rng.below(4) {
            0 => {
                let rows = 1 + self.rng.below(40);
                Call::Permute(Rows { dtype, src: a, dst, rows, columns: n / rows })
            }
            1 => {
                let (start, step) = (self.rng.below(3), 1 + self.rng.below(3));
                Call::Slice { dtype, src: a, dst, extent: n, start, step, n: n.saturating_sub(start) / step }
            }
            2 => {
                let first = self.rng.below(n + 1);
                let second = self.fitting(&[(b, dtype)]).min(n - first);
                Call::Concat { dtype, a, b, dst, first, second }
            }
            _ => {
                let (before, after) = (self.rng.below(4), self.rng.below(4));
                let value = self.rng.below(5) as i64 - 2;
                Call::Pad { dtype, src: a, dst, before, n: n.saturating_sub(before + after), after, value }
            }
        }
    }
}
