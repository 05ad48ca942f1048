//! Element by element, and what moves elements.

use backend_api::desc::{
    BinaryDesc, CompareDesc, ConcatDesc, CopyDesc, Distribution, PadDesc, PermuteDesc, RandomDesc,
    RepeatDesc, SliceDesc, TensorDesc, UnaryDesc, WhereDesc,
};
use backend_api::{BinaryOp, Command, CompareOp, DType, UnaryOp};

use super::family::Operand::{Items, Shared};
use super::family::{
    Buffer, Call, Family, Fill, Piece, Size, along, buffer, numbers, places, results, words,
};

const SAMPLED: usize = 1000;

fn packed(ptr: u64, shape: &[usize]) -> TensorDesc<'_> {
    TensorDesc::packed(ptr, DType::F32, shape)
}

pub(super) fn unary(size: &Size) -> Family {
    let n = size.numbers();
    along(size, vec![numbers(n), results(n)], n, SAMPLED, &[Items(0, 4), Items(1, 4)], |_, n, run| {
        let shape = [n];
        let desc = UnaryDesc::new(UnaryOp::Tanh, packed(1, &shape), packed(2, &shape));
        run("unary_ext", Command::Unary(&desc));
    })
}

pub(super) fn unary_f16(size: &Size) -> Family {
    let n = size.bytes / 2;
    let buffers = vec![buffer(2 * n, Fill::Normal(DType::F16)), buffer(2 * n, Fill::Nan)];
    along(size, buffers, n, SAMPLED, &[Items(0, 2), Items(1, 2)], |_, n, run| {
        let shape = [n];
        let [x, y] = [1, 2].map(|ptr| TensorDesc::packed(ptr, DType::F16, &shape));
        run("unary_ext", Command::Unary(&UnaryDesc::new(UnaryOp::Silu, x, y)));
    })
}

pub(super) fn binary(size: &Size) -> Family {
    let n = size.numbers();
    let buffers = vec![numbers(n), numbers(n), results(n)];
    along(size, buffers, n, SAMPLED, &[Items(0, 4), Items(1, 4), Items(2, 4)], |_, n, run| {
        let shape = [n];
        let desc = BinaryDesc::new(BinaryOp::Mul, packed(1, &shape), packed(2, &shape), packed(3, &shape));
        run("binary_ext", Command::Binary(&desc));
    })
}

/// A matrix and a result like it, whose rows are items.
fn rows(size: &Size) -> (usize, usize, Vec<Buffer>) {
    let columns = size.columns();
    let rows = size.numbers() / columns;
    (rows, columns, vec![numbers(rows * columns), results(rows * columns)])
}

pub(super) fn bias(size: &Size) -> Family {
    let (rows, columns, mut buffers) = rows(size);
    buffers.push(numbers(columns));
    let row = 4 * columns;
    along(size, buffers, rows, 1, &[Items(0, row), Items(1, row), Shared(2)], move |_, n, run| {
        let (shape, row) = ([n, columns], [columns]);
        let desc = BinaryDesc::new(BinaryOp::Add, packed(1, &shape), packed(3, &row), packed(2, &shape));
        run("binary_ext", Command::Binary(&desc));
    })
}

pub(super) fn compare(size: &Size) -> Family {
    let n = size.numbers();
    along(size, vec![numbers(n), results(n)], n, SAMPLED, &[Items(0, 4), Items(1, 4)], |_, n, run| {
        let shape = [n];
        let output = TensorDesc::packed(2, DType::U32, &shape);
        run("compare", Command::Compare(&CompareDesc::new(CompareOp::Lt, packed(1, &shape), 0.25, output)));
    })
}

pub(super) fn where_cond(size: &Size) -> Family {
    let (rows, columns, mut buffers) = rows(size);
    let chosen: Vec<u32> = (0..rows as u32).map(|i| u32::from(i.is_multiple_of(3))).collect();
    buffers.push(words(&chosen));
    let row = 4 * columns;
    along(size, buffers, rows, 3, &[Items(0, row), Items(1, row), Items(2, 4)], move |_, n, run| {
        let shape = [n, columns];
        let condition = TensorDesc::strided(3, DType::U32, &shape, &[1, 0]);
        run(
            "where_cond",
            Command::Where(&WhereDesc::new(condition, packed(1, &shape), 7.0, packed(2, &shape))),
        );
    })
}

pub(super) fn copy(size: &Size) -> Family {
    let n = size.numbers();
    let dtype = if size.f16 { DType::F16 } else { DType::I32 };
    let buffers = vec![numbers(n), buffer(n * dtype.size(), Fill::Nan)];
    let operands = [Items(0, 4), Items(1, dtype.size())];
    along(size, buffers, n, SAMPLED, &operands, move |_, n, run| {
        let shape = [n];
        let output = TensorDesc::packed(2, dtype, &shape);
        run("copy", Command::Copy(&CopyDesc::new(packed(1, &shape), output)));
    })
}

pub(super) fn permute(size: &Size) -> Family {
    let [r, c] = [32, 64];
    let (item, items) = (4 * r * c, size.numbers() / (r * c));
    let buffers = vec![numbers(items * r * c), results(items * r * c)];
    along(size, buffers, items, 1, &[Items(0, item), Items(1, item)], move |_, n, run| {
        let (from, to) = ([n, r, c], [n, c, r]);
        let desc = PermuteDesc::new(packed(1, &from), packed(2, &to), &[0, 2, 1]);
        run("permute", Command::Permute(&desc));
    })
}

/// Parts of a result lie all over the operand, so there are no calls that the whole amounts to.
pub(super) fn transpose(size: &Size) -> Family {
    let (rows, columns, buffers) = rows(size);
    let call = |operands, rows: usize, columns: usize| {
        Call::new(operands, move |run| {
            let (from, to) = ([rows, columns], [columns, rows]);
            run("permute", Command::Permute(&PermuteDesc::new(packed(1, &from), packed(2, &to), &[1, 0])));
        })
    };
    let all = 0..4 * rows * columns;
    let whole = call(vec![vec![Piece::Part(0, all.clone())], vec![Piece::Part(1, all)]], rows, columns);
    let count = 24;
    let sample = |first: usize| {
        let column = first * 7 % columns;
        let element = |row: usize| {
            let at = 4 * (row * columns + column);
            Piece::Part(0, at..at + 4)
        };
        let to = 4 * (column * rows + first);
        let result = vec![Piece::Part(1, to..to + 4 * count)];
        call(vec![(first..first + count).map(element).collect(), result], count, 1)
    };
    let in_part = size.part / (4 * columns);
    let samples = places(rows, in_part, count).into_iter().map(sample).collect();
    Family { samples, ..Family::new(buffers, whole) }
}

pub(super) fn slice(size: &Size) -> Family {
    let (rows, columns, mut buffers) = rows(size);
    let (items, row) = (rows / 2, 4 * columns);
    buffers[1] = results(items * columns);
    along(size, buffers, items, 1, &[Items(0, 2 * row), Items(1, row)], move |_, n, run| {
        let (from, to) = ([2 * n, columns], [n, columns]);
        let desc = SliceDesc::new(packed(1, &from), packed(2, &to), &[0, 0]).with_steps(&[2, 1]);
        run("slice", Command::Slice(&desc));
    })
}

pub(super) fn concat(size: &Size) -> Family {
    let (rows, columns, mut buffers) = rows(size);
    let half = columns / 2;
    buffers[0] = numbers(rows * half);
    buffers.push(numbers(rows * half));
    let operands = [Items(0, 4 * half), Items(1, 4 * columns), Items(2, 4 * half)];
    along(size, buffers, rows, 2, &operands, move |_, n, run| {
        let (from, to) = ([n, half], [n, columns]);
        let inputs = [packed(1, &from), packed(3, &from)];
        run("concat", Command::Concat(&ConcatDesc::new(&inputs, packed(2, &to), 1)));
    })
}

pub(super) fn pad(size: &Size) -> Family {
    let (rows, columns, mut buffers) = rows(size);
    buffers[0] = numbers(rows * (columns - 2));
    let operands = [Items(0, 4 * (columns - 2)), Items(1, 4 * columns)];
    along(size, buffers, rows, 2, &operands, move |_, n, run| {
        let (from, to) = ([n, columns - 2], [n, columns]);
        run("pad", Command::Pad(&PadDesc::new(packed(1, &from), packed(2, &to), &[0, 1], 3.0)));
    })
}

pub(super) fn repeat(size: &Size) -> Family {
    let (rows, columns, mut buffers) = rows(size);
    let half = columns / 2;
    buffers[0] = numbers(rows * half);
    let operands = [Items(0, 4 * half), Items(1, 4 * columns)];
    along(size, buffers, rows, 2, &operands, move |_, n, run| {
        let (from, to) = ([n, half], [n, columns]);
        run("repeat", Command::Repeat(&RepeatDesc::new(packed(1, &from), packed(2, &to))));
    })
}

pub(super) fn bytes(size: &Size) -> Family {
    let n = size.numbers();
    along(size, vec![numbers(n), results(n)], n, SAMPLED, &[Items(0, 4), Items(1, 4)], |_, n, run| {
        run("copy_dtod", Command::CopyBytes { dst: 2, src: 1, bytes: 4 * n });
    })
}

pub(super) fn fill(size: &Size) -> Family {
    let n = size.numbers();
    along(size, vec![results(n)], n, SAMPLED, &[Items(0, 4)], |_, n, run| {
        run("fill", Command::Fill { dst: 1, dtype: DType::F32, n, value: 2.5 });
    })
}

pub(super) fn random(size: &Size) -> Family {
    let n = size.numbers();
    along(size, vec![results(n)], n, SAMPLED, &[Items(0, 4)], |first, n, run| {
        let distribution = Distribution::Uniform { low: 0.0, high: 1.0 };
        let desc = RandomDesc::new(1, DType::F32, n, 5, distribution).with_offset(first as u64);
        run("random", Command::Random(&desc));
    })
}
