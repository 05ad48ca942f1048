//! Functions of each element, and copies.

use backend_api::desc::{
    AffineDesc, BinaryDesc, ClampDesc, CompareDesc, CopyDesc, TensorDesc, UnaryDesc, Value, WhereDesc,
};
use backend_api::support::{Access, Loop, Operand};
use backend_api::{BackendResult, BinaryOp, CompareOp, DType, UnaryOp};

use crate::judge::{Call, Dims, Named, OP, dtype, shape};
use crate::random::{Gen, Tensor};
use crate::walk::{loops_needed, walks};

type Mapped = BackendResult<([Operand; 2], Vec<Loop<2>>)>;

/// One input and one output of equal shapes. The output may be the input if that is `in_place`.
fn map(call: &mut Call, args: [&'static str; 2], [input, output]: [&Tensor; 2], in_place: bool) -> [Dims; 2] {
    call.require_eq(output.shape.len(), input.shape.len());
    input.shape.iter().zip(&output.shape).for_each(|(&from, &to)| call.require_eq(to, from));
    [input, output].into_iter().for_each(|tensor| call.strides_of(tensor));
    let dims = [input.dims(), output.dims()];
    if !call.is_refused() {
        call.limit_loops(loops_needed([&dims[0], &dims[1]]));
    }
    let access = if in_place && dims[0] == dims[1] { Access::ReadInPlace } else { Access::Read };
    call.name(Named::tensor(args[0], input, access));
    call.name(Named::tensor(args[1], output, Access::Write));
    dims
}

fn mapped(call: Call, dims: &[Dims; 2], got: Mapped) -> bool {
    let loops = call.judge(got);
    if let Some(loops) = &loops {
        walks(loops, [&dims[0], &dims[1]]);
    }
    loops.is_some()
}

fn two(g: &mut Gen, from: DType, to: DType) -> [Tensor; 2] {
    let shape = g.shape();
    let output = g.tensor(2, to, &shape);
    let shape = g.nearly(&shape);
    [g.beside(1, from, &shape, &output), output]
}

pub(crate) fn unary(g: &mut Gen) -> bool {
    use UnaryOp::{Abs, BitNot, Neg, Relu, Sign, Square};
    let (op, from) = (g.pick(UnaryOp::ALL), g.dtype());
    let to = g.like(from);
    let [input, output] = two(g, from, to);
    let mut call = Call::default();
    let defined = match from {
        DType::I32 => [Relu, Abs, Neg, Square, Sign, BitNot].contains(&op),
        DType::U32 => op == BitNot,
        _ => op != BitNot,
    };
    call.fault_if(!defined, dtype("input", from));
    call.require_dtype("output", output.dtype, from);
    let dims = map(&mut call, ["input", "output"], [&input, &output], true);
    mapped(call, &dims, UnaryDesc::new(op, input.desc(), output.desc()).operands(OP))
}

pub(crate) fn clamp(g: &mut Gen) -> bool {
    let from = g.dtype();
    let to = g.like(from);
    let [input, output] = two(g, from, to);
    let mut call = Call::default();
    call.require_dtype("output", output.dtype, from);
    let dims = map(&mut call, ["input", "output"], [&input, &output], true);
    mapped(call, &dims, ClampDesc::new(input.desc(), output.desc(), 0.0, 1.0).operands(OP))
}

pub(crate) fn affine(g: &mut Gen) -> bool {
    let from = g.float();
    let to = g.like(from);
    let [input, output] = two(g, from, to);
    let mut call = Call::default();
    call.require_float("input", from);
    call.require_dtype("output", output.dtype, from);
    let dims = map(&mut call, ["input", "output"], [&input, &output], true);
    mapped(call, &dims, AffineDesc::new(input.desc(), output.desc(), 2.0, 1.0).operands(OP))
}

pub(crate) fn copy(g: &mut Gen) -> bool {
    let (from, to) = (g.dtype(), g.dtype());
    let [src, dst] = two(g, from, to);
    let mut call = Call::default();
    let dims = map(&mut call, ["src", "dst"], [&src, &dst], false);
    mapped(call, &dims, CopyDesc::new(src.desc(), dst.desc()).operands(OP))
}

/// An input that is broadcast: a tensor, or a number.
struct Input {
    arg: &'static str,
    tensor: Option<Tensor>,
    in_place: bool,
}

impl Input {
    fn random(g: &mut Gen, arg: &'static str, ptr: u64, dtype: DType, output: &Tensor) -> Self {
        let missing = if g.one_in(4) { g.below(output.shape.len() + 1) } else { 0 };
        let mut shape = g.nearly(&output.shape[missing..]);
        shape.iter_mut().for_each(|extent| {
            if g.one_in(4) {
                *extent = 1;
            }
        });
        let tensor = g.beside(ptr, dtype, &shape, output);
        Self { arg, tensor: (!g.one_in(6)).then_some(tensor), in_place: true }
    }

    fn value(&self) -> Value<'_> {
        self.tensor.as_ref().map_or(Value::Scalar(2.0), |tensor| tensor.desc().into())
    }

    fn dtype(&self) -> Option<DType> {
        self.tensor.as_ref().map(|tensor| tensor.dtype)
    }

    /// Aligned at the output's last dimension, an extent of 1 or a missing one repeated.
    fn broadcast(&self, call: &mut Call, output: &[(usize, usize)]) -> Dims {
        let Some(tensor) = &self.tensor else {
            return output.iter().map(|&(extent, _)| (extent, 0)).collect();
        };
        call.strides_of(tensor);
        let dims = tensor.dims();
        call.fault_if(dims.len() > output.len(), shape(output.len(), dims.len()));
        let mut seen: Dims = output.iter().map(|&(extent, _)| (extent, 0)).collect();
        for (seen, &(extent, stride)) in seen.iter_mut().rev().zip(dims.iter().rev()) {
            call.fault_if(extent != 1 && extent != seen.0, shape(seen.0, extent));
            if extent == seen.0 {
                seen.1 = stride;
            }
        }
        seen
    }
}

/// Inputs of one type, the others like the first of them.
fn one_type(call: &mut Call, inputs: &[&Input]) -> Option<(&'static str, DType)> {
    let mut tensors = inputs.iter().filter_map(|input| Some((input.arg, input.dtype()?)));
    let first = tensors.next()?;
    tensors.for_each(|(arg, got)| call.require_dtype(arg, got, first.1));
    Some(first)
}

fn broadcast<const N: usize>(
    mut call: Call,
    inputs: &[&Input],
    output: &Tensor,
    got: BackendResult<([Operand; N], Vec<Loop<N>>)>,
) -> bool {
    call.strides_of(output);
    let to = output.dims();
    let mut dims: Vec<Dims> = inputs.iter().map(|input| input.broadcast(&mut call, &to)).collect();
    dims.push(to.clone());
    let all: [&[(usize, usize)]; N] = std::array::from_fn(|tensor| dims[tensor].as_slice());
    if !call.is_refused() {
        call.limit_loops(loops_needed(all));
    }
    for (input, dims) in inputs.iter().zip(&dims) {
        let Some(tensor) = &input.tensor else {
            call.name(Named::absent(input.arg));
            continue;
        };
        let same = input.in_place && *dims == to && tensor.dtype == output.dtype;
        let access = if same { Access::ReadInPlace } else { Access::Read };
        call.name(Named::new(input.arg, tensor.ptr, tensor.dtype, access, dims.iter().copied()));
    }
    call.name(Named::tensor("output", output, Access::Write));
    let loops = call.judge(got);
    if let Some(loops) = &loops {
        walks(loops, all);
    }
    loops.is_some()
}

fn output(g: &mut Gen, ptr: u64, dtype: DType) -> Tensor {
    let shape = g.shape();
    g.tensor(ptr, dtype, &shape)
}

pub(crate) fn binary(g: &mut Gen) -> bool {
    use BinaryOp::{Add, BitAnd, BitOr, BitXor, Div, Max, Min, Mod, Mul, Rem, Shl, Shr, Sub};
    let (op, of) = (g.pick(BinaryOp::ALL), g.dtype());
    let to = g.like(of);
    let output = output(g, 3, to);
    let inputs = [("a", 1), ("b", 2)].map(|(arg, ptr)| {
        let of = g.like(of);
        Input::random(g, arg, ptr, of, &output)
    });
    let [a, b] = &inputs;
    let mut call = Call::default();
    let (arg, of) = one_type(&mut call, &[a, b]).unwrap_or(("output", to));
    let of_bits = [BitAnd, BitOr, BitXor, Shl, Shr].contains(&op);
    let defined = match of {
        DType::I32 | DType::U32 => of_bits || [Add, Sub, Mul, Div, Max, Min, Rem, Mod].contains(&op),
        _ => !of_bits,
    };
    call.fault_if(!defined, dtype(arg, of));
    call.require_dtype("output", to, of);
    broadcast(call, &[a, b], &output, BinaryDesc::new(op, a.value(), b.value(), output.desc()).operands(OP))
}

pub(crate) fn compare(g: &mut Gen) -> bool {
    let (op, of, to) = (g.pick(CompareOp::ALL), g.dtype(), g.like(DType::U32));
    let output = output(g, 3, to);
    let inputs = [("a", 1), ("b", 2)].map(|(arg, ptr)| {
        let of = g.like(of);
        Input { in_place: false, ..Input::random(g, arg, ptr, of, &output) }
    });
    let [a, b] = &inputs;
    let mut call = Call::default();
    let compared = one_type(&mut call, &[a, b]).map_or(DType::F32, |(_, of)| of);
    call.require_dtype("output", to, DType::U32);
    let desc = CompareDesc::new(op, a.value(), b.value(), output.desc());
    assert_eq!(desc.dtype(), compared);
    broadcast(call, &[a, b], &output, desc.operands(OP))
}

pub(crate) fn where_cond(g: &mut Gen) -> bool {
    let (of, conditions) = (g.dtype(), g.like(DType::U32));
    let to = g.like(of);
    let output = output(g, 4, to);
    let mut condition = Input::random(g, "condition", 1, conditions, &output);
    condition.in_place = false;
    let chosen: TensorDesc<'_> = match &condition.tensor {
        Some(tensor) => tensor.desc(),
        None => return true,
    };
    let inputs = [("a", 2), ("b", 3)].map(|(arg, ptr)| {
        let of = g.like(of);
        Input::random(g, arg, ptr, of, &output)
    });
    let [a, b] = &inputs;
    let mut call = Call::default();
    call.require_dtype("condition", conditions, DType::U32);
    let of = one_type(&mut call, &[a, b]).map_or(to, |(_, of)| of);
    call.require_dtype("output", to, of);
    let got = WhereDesc::new(chosen, a.value(), b.value(), output.desc()).operands(OP);
    broadcast(call, &[&condition, a, b], &output, got)
}
