//! A call with the handles of a backend.

use backend_api::desc::{
    AffineDesc, BinaryDesc, ClampDesc, CompareDesc, ConcatDesc, CopyDesc, CumSumDesc, DequantizeDesc,
    GatherDesc, IndexShape, MatmulDesc, Matrix, PadDesc, PermuteDesc, QuantGatherDesc, QuantMatmulDesc,
    QuantMatrix, ReduceDesc, RepetitionPenalty, SampleDesc, ScatterDesc, SliceDesc, TensorDesc, TopKDesc,
    UnaryDesc, WhereDesc,
};
use backend_api::{Activation, BackendResult, BackendTranspose, BinaryOp, ComputeBackend, DType};

use super::call::QUANT_FORMATS;
use super::{Axis, Call, Lookup, Rows, Slot};
use crate::rng::Rng;

/// What a call returned.
#[derive(Debug)]
pub(super) enum Returned {
    /// Nothing, or what a program doesn't look at.
    Nothing,
    /// A new handle.
    Handle(u64),
    /// What was read.
    Bytes(Vec<u8>),
}

impl Call {
    /// The shape of the calls over `n` elements in a row.
    const fn elements(&self) -> [usize; 1] {
        match self {
            Self::Unary { n, .. }
            | Self::Compare { n, .. }
            | Self::Where { n, .. }
            | Self::Clamp { n, .. }
            | Self::Affine { n, .. }
            | Self::Pad { n, .. }
            | Self::Slice { n, .. } => [*n],
            _ => [0],
        }
    }
}

/// Makes a call on `backend`, whose handles `ptr` knows. The steps of asynchronous reads and the faults are
/// made elsewhere.
pub(super) fn invoke(
    call: &Call,
    backend: &dyn ComputeBackend,
    ptr: &dyn Fn(Slot) -> u64,
) -> BackendResult<Returned> {
    match *call {
        Call::Alloc { bytes, .. } => return backend.alloc(bytes).map(Returned::Handle),
        Call::View { of, offset, bytes, .. } => {
            return backend.view(ptr(of), offset, bytes).map(Returned::Handle);
        }
        Call::Read { src, bytes } => {
            let mut read = vec![0xa5; bytes];
            return backend.copy_dtoh(&mut read, ptr(src)).map(|()| Returned::Bytes(read));
        }
        Call::Capture { ref calls, .. } => {
            let record = |recorded: &dyn ComputeBackend| {
                calls.iter().try_for_each(|call| invoke(call, recorded, ptr).map(drop))
            };
            return backend.capture(&mut { record }).map(Returned::Handle);
        }
        Call::Replay { graph } => backend.replay(ptr(graph)),
        Call::FreeGraph { graph } => backend.free_graph(ptr(graph)),
        Call::Free { slot } => backend.free(ptr(slot)),
        Call::Upload { dst, dtype, bytes, seed } => backend.copy_htod(ptr(dst), &numbers(dtype, bytes, seed)),
        Call::Fill { dst, dtype, n, value } => backend.fill(ptr(dst), dtype, n, value as f64),
        Call::CopyBytes { dst, src, bytes } => backend.copy_dtod(ptr(dst), ptr(src), bytes),
        Call::Synchronize => backend.synchronize(),
        Call::Trim => backend.trim().map(drop),
        Call::Budget { bytes } => backend.set_memory_budget(bytes),
        _ => compute(call, backend, ptr),
    }
    .map(|()| Returned::Nothing)
}

fn compute(call: &Call, backend: &dyn ComputeBackend, ptr: &dyn Fn(Slot) -> u64) -> BackendResult<()> {
    let one = call.elements();
    match *call {
        Call::Copy { dst, src, from, to, rows, columns, ld, transposed } => {
            let (shape, strides) =
                if transposed { ([columns, rows], [1, ld]) } else { ([rows, columns], [ld, 1]) };
            let src = TensorDesc::strided(ptr(src), from, &shape, &strides);
            backend.copy(&CopyDesc::new(src, TensorDesc::packed(ptr(dst), to, &shape)))
        }
        Call::Unary { op, dtype, src, dst, .. } => backend.unary_ext(&UnaryDesc::new(
            op,
            tensor(ptr(src), dtype, &one),
            tensor(ptr(dst), dtype, &one),
        )),
        Call::Binary { op, dtype, a, b, dst, rows, columns, broadcast } => {
            let whole = [rows, columns];
            let right = if broadcast { &whole[1..] } else { &whole };
            let (a, b) = (tensor(ptr(a), dtype, &whole), tensor(ptr(b), dtype, right));
            backend.binary_ext(&BinaryDesc::new(op, a, b, tensor(ptr(dst), dtype, &whole)))
        }
        Call::Compare { op, dtype, a, b, dst, .. } => {
            let (a, b) = (tensor(ptr(a), dtype, &one), tensor(ptr(b), dtype, &one));
            backend.compare(&CompareDesc::new(op, a, b, tensor(ptr(dst), DType::U32, &one)))
        }
        Call::Where { dtype, condition, a, b, dst, .. } => {
            let [a, b, output] = [a, b, dst].map(|slot| tensor(ptr(slot), dtype, &one));
            backend.where_cond(&WhereDesc::new(tensor(ptr(condition), DType::U32, &one), a, b, output))
        }
        Call::Clamp { dtype, src, dst, min, max, .. } => {
            let [input, output] = [src, dst].map(|slot| tensor(ptr(slot), dtype, &one));
            backend.clamp(&ClampDesc::new(input, output, min as f64, max as f64))
        }
        Call::Affine { dtype, src, dst, scale, bias, .. } => {
            let [input, output] = [src, dst].map(|slot| tensor(ptr(slot), dtype, &one));
            backend.affine(&AffineDesc::new(input, output, scale as f64, bias as f64))
        }
        Call::Reduce { op, along: Axis { dtype, src, dst, shape, axis } } => {
            backend.reduce_ext(&ReduceDesc::new(op, tensor(ptr(src), dtype, &shape), &[axis], ptr(dst)))
        }
        Call::Cumsum { along: Axis { dtype, src, dst, shape, axis }, exclusive, reverse } => {
            let mut desc = CumSumDesc::along(dtype, ptr(src), ptr(dst), &shape, axis)?;
            (desc.exclusive, desc.reverse) = (exclusive, reverse);
            backend.cumsum(&desc)
        }
        Call::Matmul { dtype, a, b, c, m, n, k, transposed, beta } => {
            let [trans_a, trans_b] =
                transposed.map(|yes| if yes { BackendTranspose::Trans } else { BackendTranspose::NoTrans });
            let matrix = |slot, columns: usize| Matrix::new(ptr(slot), dtype, columns.max(1));
            let a = matrix(a, if transposed[0] { m } else { k });
            let b = matrix(b, if transposed[1] { k } else { n });
            let desc = MatmulDesc::new(m, n, k, a, b, matrix(c, n)).with_transpose(trans_a, trans_b);
            backend.matmul(&desc.with_scale(1.0, beta as f64))
        }
        Call::Gather(Lookup { dtype, table, indices, dst, rows, columns, count }) => {
            let [table, indices, dst] = [table, indices, dst].map(ptr);
            let shape = IndexShape { rows, columns, count };
            backend.gather(&GatherDesc::new(dtype, table, indices, dst, shape))
        }
        Call::Scatter { op, dtype, from, table, indices, src, rows, columns, count } => {
            let [table, indices, src] = [table, indices, src].map(ptr);
            let shape = IndexShape { rows, columns, count };
            let desc = ScatterDesc::new(op, dtype, table, indices, src, shape);
            backend.scatter(&desc.with_source_dtype(from))
        }
        Call::TopK { dtype, src, dst, values, rows, columns, k, largest } => {
            let mut desc = TopKDesc::new(dtype, ptr(src), ptr(dst), rows, columns, k);
            (desc.values, desc.largest) = (values.map(ptr), largest);
            backend.top_k(&desc)
        }
        Call::Sample { logits: Rows { dtype, src, dst, rows, columns }, cold, window, len } => {
            let desc = SampleDesc::new(dtype, ptr(src), ptr(dst), rows, columns, 0);
            let mut desc = if cold { desc.with_temperature(0.0) } else { desc.with_top_k(1) };
            let repetition = |slot| RepetitionPenalty { window: ptr(slot), len, penalty: 2.0 };
            desc.repetition = window.map(repetition);
            backend.sample(&desc)
        }
        Call::QuantMatmul { .. } | Call::QuantGather { .. } | Call::Dequantize { .. } => {
            quantised(call, backend, ptr)
        }
        Call::Permute(Rows { dtype, src, dst, rows, columns }) => {
            let (from, to) = ([rows, columns], [columns, rows]);
            let (from, to) = (tensor(ptr(src), dtype, &from), tensor(ptr(dst), dtype, &to));
            backend.permute(&PermuteDesc::new(from, to, &[1, 0]))
        }
        Call::Slice { dtype, src, dst, extent, start, step, .. } => {
            let whole = [extent];
            let (from, to) = (tensor(ptr(src), dtype, &whole), tensor(ptr(dst), dtype, &one));
            backend.slice(&SliceDesc::new(from, to, &[start]).with_steps(&[step]))
        }
        Call::Concat { dtype, a, b, dst, first, second } => {
            let whole = [first.saturating_add(second)];
            let (first, second) = ([first], [second]);
            let inputs = [tensor(ptr(a), dtype, &first), tensor(ptr(b), dtype, &second)];
            backend.concat(&ConcatDesc::new(&inputs, tensor(ptr(dst), dtype, &whole), 0))
        }
        Call::Pad { dtype, src, dst, before, n, after, value } => {
            let whole = [before.saturating_add(n).saturating_add(after)];
            let (from, to) = (tensor(ptr(src), dtype, &one), tensor(ptr(dst), dtype, &whole));
            backend.pad(&PadDesc::new(from, to, &[before], value as f64))
        }
        Call::WarmUp { a, b, dst, n } => {
            let [a, b, dst] = [a, b, dst].map(ptr);
            let add = |backend: &dyn ComputeBackend| backend.binary(BinaryOp::Add, a, b, dst, n);
            pollster::block_on(backend.warm_up_async(&[&add]))
        }
        _ => Ok(()),
    }
}

fn quantised(call: &Call, backend: &dyn ComputeBackend, ptr: &dyn Fn(Slot) -> u64) -> BackendResult<()> {
    let matrix = |slot, format: usize, rows, columns| {
        QuantMatrix::new(ptr(slot), QUANT_FORMATS[format % QUANT_FORMATS.len()], rows, columns)
    };
    match *call {
        Call::QuantMatmul { format, from, to, a, b, c, bias, m, n, k, relu, residual } => {
            let (a, c) = (Matrix::new(ptr(a), from, k.max(1)), Matrix::new(ptr(c), to, n.max(1)));
            let mut desc = QuantMatmulDesc::new(m, a, matrix(b, format, n, k), c);
            desc.bias = bias.map(ptr);
            desc.activation = if relu { Activation::Relu } else { Activation::Identity };
            desc.residual = residual.then_some(c);
            backend.quant_matmul(&desc)
        }
        Call::QuantGather { format, lookup } => {
            let Lookup { dtype, table, indices, dst, rows, columns, count } = lookup;
            let table = matrix(table, format, rows, columns);
            backend.quant_gather(&QuantGatherDesc::new(dtype, table, ptr(indices), ptr(dst), count))
        }
        Call::Dequantize { format, matrix: Rows { dtype, src, dst, rows, columns }, ld } => {
            let output = Matrix::new(ptr(dst), dtype, ld);
            backend.dequantize(&DequantizeDesc::new(matrix(src, format, rows, columns), output))
        }
        _ => Ok(()),
    }
}

const fn tensor(ptr: u64, dtype: DType, shape: &[usize]) -> TensorDesc<'_> {
    TensorDesc::packed(ptr, dtype, shape)
}

/// Small integers of `dtype` that depend on `seed`, as bytes, the last one perhaps cut off.
pub(super) fn numbers(dtype: DType, bytes: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::from_name(&format!("numbers {seed}"));
    let mut data = Vec::with_capacity(bytes + 4);
    while data.len() < bytes {
        let number = rng.below(9) as i32 - 2;
        match dtype {
            DType::F16 => data.extend(half::f16::from_f32(number as f32).to_le_bytes()),
            DType::I32 => data.extend(number.to_le_bytes()),
            DType::U32 => data.extend(number.unsigned_abs().to_le_bytes()),
            _ => data.extend((number as f32).to_le_bytes()),
        }
    }
    data.truncate(bytes);
    data
}
