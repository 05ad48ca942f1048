//! Rows: reductions, normalisations, sums, sorts and samples.

use backend_api::desc::{
    BatchNormDesc, ChannelShape, CumSumDesc, GroupNormDesc, LayerNormDesc, NormBackwardDesc,
    NormBackwardWeightDesc, ReduceDesc, RmsNormDesc, SampleDesc, SoftmaxBackwardDesc, SoftmaxDesc,
    TensorDesc, TopKDesc,
};
use backend_api::{Command, DType, ReduceOp};

use super::family::Operand::{Items, Shared};
use super::family::{Buffer, Call, Family, Fill, Piece, Run, Size, Values, along, buffer, numbers, results};

const F32: DType = DType::F32;

/// Rows and columns of a large matrix.
fn extents(size: &Size) -> [usize; 2] {
    let columns = size.columns();
    [size.numbers() / columns, columns]
}

/// A call on rows of x and y, both large, and operands that all rows share.
fn rows(size: &Size, shared: Vec<Buffer>, make: impl Fn(usize, usize, Run<'_>) + 'static) -> Family {
    let [rows, columns] = extents(size);
    let mut operands = vec![Items(0, 4 * columns), Items(1, 4 * columns)];
    let mut buffers = vec![numbers(rows * columns), results(rows * columns)];
    for buffer in shared {
        operands.push(Shared(buffers.len()));
        buffers.push(buffer);
    }
    along(size, buffers, rows, 1, &operands, move |_, n, run| make(n, columns, run))
}

/// A call on rows of two operands and of their gradient, all of them large.
fn gradients(size: &Size, make: impl Fn(usize, usize, Run<'_>) + 'static) -> Family {
    let [rows, columns] = extents(size);
    let n = rows * columns;
    let operands = [0, 1, 2].map(|buffer| Items(buffer, 4 * columns));
    let buffers = vec![numbers(n), numbers(n), results(n)];
    along(size, buffers, rows, 1, &operands, move |_, n, run| make(n, columns, run))
}

pub(super) fn softmax(size: &Size) -> Family {
    rows(size, Vec::new(), |n, columns, run| {
        run("softmax", Command::Softmax(&SoftmaxDesc::rows(F32, 1, 2, n, columns)));
    })
}

/// Along the middle axis of three.
pub(super) fn softmax_inner(size: &Size) -> Family {
    let (length, inner) = (32, 16);
    let (item, items) = (4 * length * inner, size.numbers() / (length * inner));
    let buffers = vec![numbers(items * length * inner), results(items * length * inner)];
    along(size, buffers, items, 1, &[Items(0, item), Items(1, item)], move |_, n, run| {
        let mut desc = SoftmaxDesc::rows(F32, 1, 2, n, length);
        desc.inner = inner;
        run("softmax", Command::Softmax(&desc));
    })
}

pub(super) fn softmax_backward(size: &Size) -> Family {
    gradients(size, |n, columns, run| {
        let forward = SoftmaxDesc::rows(F32, 0, 1, n, columns);
        run("softmax_backward", Command::SoftmaxBackward(&SoftmaxBackwardDesc::of(&forward, 2, 3)));
    })
}

pub(super) fn cumsum(size: &Size) -> Family {
    rows(size, Vec::new(), |n, columns, run| {
        run("cumsum", Command::CumSum(&CumSumDesc::rows(F32, 1, 2, n, columns)));
    })
}

pub(super) fn layer_norm(size: &Size) -> Family {
    let weight = vec![numbers(size.columns())];
    rows(size, weight, |n, columns, run| {
        let desc = LayerNormDesc::new(F32, 1, 2, n, columns).with_weight(3);
        run("layer_norm", Command::LayerNorm(&desc));
    })
}

pub(super) fn rms_norm(size: &Size) -> Family {
    let weight = vec![numbers(size.columns())];
    rows(size, weight, |n, columns, run| {
        let desc = RmsNormDesc::new(F32, 1, 2, n, columns).with_weight(3);
        run("rms_norm", Command::RmsNorm(&desc));
    })
}

pub(super) fn norm_backward(size: &Size) -> Family {
    gradients(size, |n, columns, run| {
        let desc = NormBackwardDesc::rms_norm(F32, 1, 2, 3, n, columns);
        run("norm_backward", Command::NormBackward(&desc));
    })
}

pub(super) fn norm_backward_weight(size: &Size) -> Family {
    let [rows, columns] = extents(size);
    let n = rows * columns;
    let operands = [Items(0, 4 * columns), Items(1, 4 * columns), Shared(2)];
    let buffers = vec![numbers(n), numbers(n), results(columns)];
    let mut family = along(size, buffers, rows, 1, &operands, move |_, n, run| {
        let input = NormBackwardDesc::rms_norm(F32, 1, 2, 0, n, columns);
        run("norm_backward_weight", Command::NormBackwardWeight(&NormBackwardWeightDesc::of(&input, 3)));
    });
    // Sums over all rows.
    family.samples.clear();
    family.refused()
}

/// Images of 32 channels of 32 pixels.
const CHANNELS: ChannelShape = ChannelShape { batch: 0, channels: 32, spatial: 32 };

fn images(
    size: &Size,
    shared: Vec<Buffer>,
    make: impl Fn(ChannelShape, &mut dyn FnMut(&'static str, Command<'_>)) + 'static,
) -> Family {
    let elements = CHANNELS.channels * CHANNELS.spatial;
    let items = size.numbers() / elements;
    let mut operands = vec![Items(0, 4 * elements), Items(1, 4 * elements)];
    let mut buffers = vec![numbers(items * elements), results(items * elements)];
    for buffer in shared {
        operands.push(Shared(buffers.len()));
        buffers.push(buffer);
    }
    along(size, buffers, items, 1, &operands, move |_, n, run| {
        make(ChannelShape { batch: n, ..CHANNELS }, run);
    })
}

pub(super) fn group_norm(size: &Size) -> Family {
    images(size, Vec::new(), |shape, run| {
        run("group_norm", Command::GroupNorm(&GroupNormDesc::new(F32, 1, 2, shape, 8)));
    })
}

pub(super) fn batch_norm(size: &Size) -> Family {
    let statistics = vec![numbers(CHANNELS.channels), buffer(4 * CHANNELS.channels, Fill::Value(F32, 1.5))];
    images(size, statistics, |shape, run| {
        run("batch_norm", Command::BatchNorm(&BatchNormDesc::new(F32, 1, 2, 3, 4, shape)));
    })
}

/// A result for each row.
fn reduced(size: &Size, op: ReduceOp) -> Family {
    let [rows, columns] = extents(size);
    let operands = [Items(0, 4 * columns), Items(1, 4)];
    let buffers = vec![numbers(rows * columns), results(rows)];
    along(size, buffers, rows, 3, &operands, move |_, n, run| {
        let shape = [n, columns];
        let desc = ReduceDesc::new(op, TensorDesc::packed(1, F32, &shape), &[1], 2);
        run("reduce_ext", Command::Reduce(&desc));
    })
}

pub(super) fn sums(size: &Size) -> Family {
    reduced(size, ReduceOp::Sum)
}

pub(super) fn largest(size: &Size) -> Family {
    reduced(size, ReduceOp::ArgMax)
}

/// Sums over the rows of zeros and a few other numbers, or over everything.
fn sums_over_rows(size: &Size, axes: &'static [usize]) -> Family {
    let [rows, columns] = extents(size);
    let outputs = if axes.len() > 1 { 1 } else { columns };
    let in_part = size.part / (4 * columns);
    let call = |first: usize, count: usize| {
        let input = Piece::Part(0, 4 * first * columns..4 * (first + count) * columns);
        Call::new(vec![vec![input], vec![Piece::Part(1, 0..4 * outputs)]], move |run| {
            let shape = [count, columns];
            let desc = ReduceDesc::new(ReduceOp::Sum, TensorDesc::packed(1, F32, &shape), axes, 2);
            run("reduce_ext", Command::Reduce(&desc));
        })
    };
    let buffers = vec![buffer(4 * rows * columns, Fill::Value(F32, 0.0)), results(outputs)];
    let mut want = vec![0f32; outputs];
    let mut planted = Vec::new();
    for (i, row) in super::family::places(rows, in_part, 1).into_iter().enumerate() {
        let column = (row * 13 + i) % columns;
        let value = (1 << i) as f32;
        want[column % outputs] += value;
        planted.push((0, 4 * (row * columns + column), value.to_le_bytes().to_vec()));
    }
    let parts = (0..rows).step_by(in_part).map(|first| call(first, in_part.min(rows - first))).collect();
    Family {
        parts,
        planted,
        values: vec![Values { buffer: 1, byte: 0, want }],
        ..Family::new(buffers, call(0, rows))
    }
}

pub(super) fn sums_of_columns(size: &Size) -> Family {
    sums_over_rows(size, &[0])
}

pub(super) fn sum(size: &Size) -> Family {
    sums_over_rows(size, &[0, 1])
}

fn sorted(size: &Size, of_row: impl Fn(usize) -> usize) -> Family {
    let [rows, columns] = extents(size);
    let k = of_row(columns);
    let operands = [Items(0, 4 * columns), Items(1, 4 * k), Items(2, 4 * k)];
    let buffers = vec![numbers(rows * columns), results(rows * k), results(rows * k)];
    along(size, buffers, rows, 1, &operands, move |_, n, run| {
        let desc = TopKDesc::new(F32, 1, 2, n, columns, k).with_values(3);
        run("top_k", Command::TopK(&desc));
    })
}

pub(super) fn top_k(size: &Size) -> Family {
    sorted(size, |_| 8)
}

pub(super) fn sort(size: &Size) -> Family {
    sorted(size, |columns| columns)
}

pub(super) fn sample(size: &Size) -> Family {
    let [rows, columns] = extents(size);
    let buffers = vec![numbers(rows * columns), results(rows)];
    along(size, buffers, rows, 1, &[Items(0, 4 * columns), Items(1, 4)], move |first, n, run| {
        // A row's number in the stream is its number.
        let desc = SampleDesc::new(F32, 1, 2, n, columns, 3).with_top_k(20).with_offset(first as u64);
        run("sample", Command::Sample(&desc));
    })
}
