//! Packed tensors: softmax, normalisations, sums and indices along an axis, random numbers.

use backend_api::desc::{
    BatchNormDesc, ChannelShape, CumSumDesc, Distribution, GatherDesc, GroupNormDesc, IndexShape,
    LayerNormDesc, NormBackwardDesc, NormBackwardWeightDesc, RandomDesc, RepetitionPenalty, RmsNormDesc,
    SampleDesc, ScatterDesc, SoftmaxBackwardDesc, SoftmaxDesc, SoftmaxOver, TopKDesc,
};
use backend_api::support::Access::{self, Read, ReadInPlace, Write};
use backend_api::{BackendResult, DType, ScatterOp};

use crate::judge::{Call, Named, OP, dtype, packed_dims, shape, volume};
use crate::random::Gen;

/// Whether there are elements.
fn some(shape: &[usize]) -> bool {
    volume(&packed_dims(shape)) > 0
}

/// A call on packed operands of one type.
struct Packed {
    call: Call,
    of: DType,
    /// The type of weights and statistics.
    vectors: DType,
    handles: u64,
}

impl Packed {
    fn new(of: DType) -> Self {
        Self { call: Call::default(), of, vectors: of, handles: 0 }
    }

    fn float(arg: &'static str, of: DType) -> Self {
        let mut packed = Self::new(of);
        packed.call.require_float(arg, of);
        packed
    }

    /// Weights of a type of their own: that of the rows, or f32.
    fn weights(mut self, vectors: DType) -> Self {
        self.call.fault_if(vectors != self.of && vectors != DType::F32, dtype("weight_dtype", vectors));
        self.vectors = vectors;
        self
    }

    /// An output of the rows' type, or of f16 beside rows of f32.
    fn output_of(&mut self, of: DType, shape: &[usize]) {
        self.call.fault_if(of != self.of && of != DType::F16, dtype("output_dtype", of));
        self.handles += 1;
        self.call.name(Named::packed("output", self.handles, of, Write, shape));
    }

    fn name(&mut self, arg: &'static str, access: Access, shape: &[usize]) {
        self.handles += 1;
        self.call.name(Named::packed(arg, self.handles, self.of, access, shape));
    }

    /// `length` numbers that apply to tensors of `shape`, if they are given and there are any.
    fn vector(&mut self, arg: &'static str, given: Option<u64>, length: usize, is_used: bool) {
        self.handles += 1;
        let vector = Named::packed(arg, self.handles, self.vectors, Read, &[length]);
        self.call.name(vector.only_if(given.is_some() && is_used));
    }

    /// A residual that is added to rows, and the sum of both, where they are given.
    fn residual_and_sum(&mut self, given: [Option<u64>; 2], shape: &[usize]) {
        for ((arg, access), given) in [("residual", ReadInPlace), ("sum", Write)].into_iter().zip(given) {
            self.handles += 1;
            let operand = Named::packed(arg, self.handles, self.of, access, shape);
            self.call.name(operand.only_if(given.is_some()));
        }
    }
}

/// Which of a packed tensor's extents lie before and behind an axis.
fn split(call: &mut Call, extents: &[usize], axis: usize) -> Option<[usize; 3]> {
    call.require_at_least(1, extents.len());
    call.fault_if(axis >= extents.len(), shape(extents.len(), axis));
    call.require_countable(extents);
    if call.is_refused() {
        return None;
    }
    // Without elements, a part of the extents may be beyond counting.
    [&extents[..axis], &extents[axis + 1..]].into_iter().for_each(|part| {
        if volume(&packed_dims(part)) > usize::MAX as u128 {
            call.fault_if(true, crate::judge::overflow());
        }
    });
    let product = |part: &[usize]| volume(&packed_dims(part)) as usize;
    (!call.is_refused()).then(|| [product(&extents[..axis]), extents[axis], product(&extents[axis + 1..])])
}

fn axis_of(g: &mut Gen, extents: &[usize]) -> usize {
    let usual = g.below(extents.len().max(1));
    g.about(usual)
}

fn op_renamed<T>(got: BackendResult<T>) -> BackendResult<T> {
    use backend_api::BackendError::{Overflow, Shape};
    got.map_err(|error| match error {
        Shape { what, expected, got, .. } => Shape { op: OP, what, expected, got },
        Overflow { what, .. } => Overflow { op: OP, what },
        other => other,
    })
}

/// A descriptor along an axis of some extents, and the products of these before, along and after it.
fn along(g: &mut Gen, got: impl FnOnce(&[usize], usize) -> BackendResult<[usize; 3]>) -> bool {
    let extents = g.shape();
    let axis = axis_of(g, &extents);
    let mut call = Call::default();
    let expected = split(&mut call, &extents, axis);
    assert_eq!(call.answer(op_renamed(got(&extents, axis))), expected);
    expected.is_some()
}

pub(crate) fn softmax_along(g: &mut Gen) -> bool {
    along(g, |extents, axis| {
        let desc = SoftmaxDesc::along(DType::F16, 1, 2, extents, axis)?;
        Ok([desc.outer, desc.length, desc.inner])
    })
}

pub(crate) fn cumsum_along(g: &mut Gen) -> bool {
    along(g, |extents, axis| {
        let desc = CumSumDesc::along(DType::I32, 1, 2, extents, axis)?;
        assert_eq!((desc.dtype, desc.input, desc.output), (DType::I32, 1, 2));
        Ok([desc.outer, desc.length, desc.inner])
    })
}

pub(crate) fn softmax(g: &mut Gen) -> bool {
    let (of, [rows, columns, inner]) = (g.float(), g.extents());
    let mut packed = Packed::float("dtype", of);
    packed.name("input", ReadInPlace, &[rows, columns, inner]);
    packed.name("output", Write, &[rows, columns, inner]);
    let mut desc = SoftmaxDesc::rows(of, 1, 2, rows, columns);
    assert!(!desc.log && desc.with_log().log);
    desc.inner = inner;
    packed.call.judge_operands(desc.operands(OP))
}

pub(crate) fn softmax_backward(g: &mut Gen) -> bool {
    let (of, [rows, columns]) = (g.float(), g.extents());
    let mut packed = Packed::float("dtype", of);
    packed.name("y", Read, &[rows, columns]);
    packed.name("grad_output", ReadInPlace, &[rows, columns]);
    packed.name("grad_input", Write, &[rows, columns]);
    let forward = SoftmaxDesc::rows(of, 9, 1, rows, columns);
    packed.call.judge_operands(SoftmaxBackwardDesc::of(&forward, 2, 3).operands(OP))
}

pub(crate) fn cumsum(g: &mut Gen) -> bool {
    let (of, [rows, columns, inner]) = (g.dtype(), g.extents());
    let mut packed = Packed::new(of);
    packed.name("input", ReadInPlace, &[rows, columns, inner]);
    packed.name("output", Write, &[rows, columns, inner]);
    let mut desc = CumSumDesc::rows(of, 1, 2, rows, columns);
    assert!(!desc.exclusive && !desc.reverse);
    desc.inner = inner;
    packed.call.judge_operands(desc.operands(OP))
}

/// Mostly a type that weights may have beside rows of `of`.
fn weight_dtype(g: &mut Gen, of: DType) -> DType {
    if g.one_in(6) { g.dtype() } else { [of, DType::F32][g.below(2)] }
}

/// Mostly a type that the output of a normalisation may have beside rows of `of`.
fn output_dtype(g: &mut Gen, of: DType) -> DType {
    if g.one_in(6) { g.dtype() } else { [of, DType::F16][g.below(2)] }
}

pub(crate) fn layer_norm(g: &mut Gen) -> bool {
    let (of, extents @ [rows, columns]) = (g.float(), g.extents());
    let mut desc = LayerNormDesc::new(of, 1, 2, rows, columns);
    (desc.weight, desc.bias, desc.residual) = (g.maybe(3), g.maybe(4), g.maybe(5));
    (desc.sum, desc.weight_dtype) = (g.maybe(6), weight_dtype(g, of));
    desc.output_dtype = output_dtype(g, of);
    let mut packed = Packed::float("dtype", of).weights(desc.weight_dtype);
    packed.name("input", ReadInPlace, &extents);
    packed.output_of(desc.output_dtype, &extents);
    packed.vector("weight", desc.weight, columns, rows > 0);
    packed.vector("bias", desc.bias, columns, rows > 0);
    packed.residual_and_sum([desc.residual, desc.sum], &extents);
    packed.call.judge_operands(desc.operands(OP))
}

pub(crate) fn rms_norm(g: &mut Gen) -> bool {
    let (of, extents @ [rows, columns]) = (g.float(), g.extents());
    let mut desc = RmsNormDesc::new(of, 1, 2, rows, columns);
    (desc.weight, desc.residual, desc.sum) = (g.maybe(3), g.maybe(4), g.maybe(5));
    (desc.weight_dtype, desc.output_dtype) = (weight_dtype(g, of), output_dtype(g, of));
    let mut packed = Packed::float("dtype", of).weights(desc.weight_dtype);
    packed.name("input", ReadInPlace, &extents);
    packed.output_of(desc.output_dtype, &extents);
    packed.vector("weight", desc.weight, columns, rows > 0);
    packed.residual_and_sum([desc.residual, desc.sum], &extents);
    packed.call.judge_operands(desc.operands(OP))
}

pub(crate) fn group_norm(g: &mut Gen) -> bool {
    let (of, extents @ [batch, channels, spatial]) = (g.float(), g.extents());
    let groups = if g.one_in(3) { channels } else { g.extent() };
    let shape = ChannelShape { batch, channels, spatial };
    let mut desc = GroupNormDesc::new(of, 1, 2, shape, groups);
    (desc.weight, desc.bias) = (g.maybe(3), g.maybe(4));
    desc.weight_dtype = weight_dtype(g, of);
    let mut packed = Packed::float("dtype", of).weights(desc.weight_dtype);
    packed.call.require_at_least(1, groups);
    packed.call.require_eq(0, channels.checked_rem(groups).unwrap_or(0));
    packed.name("input", ReadInPlace, &extents);
    packed.name("output", Write, &extents);
    packed.vector("weight", desc.weight, channels, some(&extents));
    packed.vector("bias", desc.bias, channels, some(&extents));
    packed.call.judge_operands(desc.operands(OP))
}

pub(crate) fn batch_norm(g: &mut Gen) -> bool {
    let (of, extents @ [batch, channels, spatial]) = (g.float(), g.extents());
    let shape = ChannelShape { batch, channels, spatial };
    let mut desc = BatchNormDesc::new(of, 1, 2, 3, 4, shape);
    (desc.weight, desc.bias) = (g.maybe(5), g.maybe(6));
    desc.weight_dtype = weight_dtype(g, of);
    let mut packed = Packed::float("dtype", of).weights(desc.weight_dtype);
    packed.name("input", ReadInPlace, &extents);
    packed.name("output", Write, &extents);
    for (arg, given) in
        [("mean", Some(3)), ("variance", Some(4)), ("weight", desc.weight), ("bias", desc.bias)]
    {
        packed.vector(arg, given, channels, some(&extents));
    }
    packed.call.judge_operands(desc.operands(OP))
}

fn norm_gradient(g: &mut Gen, of: DType, [rows, columns]: [usize; 2]) -> NormBackwardDesc {
    let forms = [NormBackwardDesc::layer_norm, NormBackwardDesc::rms_norm];
    let form = g.below(2);
    let desc = forms[form](of, 1, 2, 3, rows, columns);
    assert_eq!((desc.centred, desc.eps), [(true, 1e-5), (false, 1e-6)][form]);
    desc
}

pub(crate) fn norm_backward(g: &mut Gen) -> bool {
    let (of, extents) = (g.float(), g.extents());
    let mut desc = norm_gradient(g, of, extents);
    desc.weight = g.maybe(4);
    let mut packed = Packed::float("dtype", of);
    packed.name("x", Read, &extents);
    packed.name("grad_output", ReadInPlace, &extents);
    packed.name("grad_input", Write, &extents);
    packed.vector("weight", desc.weight, extents[1], extents[0] > 0);
    packed.call.judge_operands(desc.operands(OP))
}

pub(crate) fn norm_backward_weight(g: &mut Gen) -> bool {
    let (of, extents) = (g.float(), g.extents());
    let desc = norm_gradient(g, of, extents);
    let mut packed = Packed::float("dtype", of);
    packed.name("x", Read, &extents);
    packed.name("grad_output", Read, &extents);
    // Of no rows the sum is 0.
    packed.name("grad_weight", Write, &extents[1..]);
    packed.call.judge_operands(NormBackwardWeightDesc::of(&desc, 3).operands(OP))
}

pub(crate) fn gather(g: &mut Gen) -> bool {
    let (of, [outer, rows, columns, count]) = (g.dtype(), g.extents());
    let mut desc = GatherDesc::new(of, 1, 2, 3, IndexShape { rows, columns, count }).with_outer(outer);
    let each = g.one_in(2);
    if each {
        desc = desc.with_per_element();
    }
    let result = [outer, count, columns];
    let indices: &[usize] = if each { &result } else { &[count] };
    let mut call = Call::default();
    call.name(Named::packed("table", 1, of, Read, &[outer, rows, columns]).only_if(some(&result)));
    call.name(Named::packed("indices", 2, DType::U32, Read, indices).only_if(some(&result)));
    call.name(Named::packed("output", 3, of, Write, &result));
    call.judge_operands(desc.operands(OP))
}

pub(crate) fn scatter(g: &mut Gen) -> bool {
    let (of, op, [outer, rows, columns, count]) = (g.dtype(), g.pick(ScatterOp::ALL), g.extents());
    let each = g.one_in(2);
    let shape = IndexShape { rows, columns, count };
    let mut desc = ScatterDesc::new(op, of, 1, 2, 3, shape);
    if g.one_in(3) {
        let add = if each { ScatterDesc::scatter_add } else { ScatterDesc::index_add };
        desc = add(of, 1, 2, 3, shape);
        assert_eq!(desc.op, ScatterOp::Add);
    }
    desc = desc.with_outer(outer);
    if each {
        desc = desc.with_per_element();
    }
    let (source, table) = ([outer, count, columns], [outer, rows, columns]);
    let indices: &[usize] = if each { &source } else { &[count] };
    // Where nothing arrives, or at no place, nothing is done.
    let is_work = some(&source) && some(&table);
    let mut call = Call::default();
    call.name(Named::packed("table", 1, of, Write, &table).only_if(is_work));
    call.name(Named::packed("indices", 2, DType::U32, Read, indices).only_if(is_work));
    let from = g.like(of);
    desc = desc.with_source_dtype(from);
    let converts = desc.op == ScatterOp::Assign && of.is_float() && from.is_float();
    call.fault_if(from != of && !converts, dtype("source", from));
    call.name(Named::packed("source", 3, from, Read, &source).only_if(is_work));
    if !is_work {
        call.tolerate(crate::judge::overflow());
    }
    call.judge_operands(desc.operands(OP))
}

pub(crate) fn top_k(g: &mut Gen) -> bool {
    let (of, [rows, columns, k], values) = (g.dtype(), g.extents(), g.maybe(3));
    let mut desc = TopKDesc::new(of, 1, 2, rows, columns, k);
    assert!(desc.largest && !desc.with_smallest().largest);
    let mut call = Call::default();
    call.fault_if(k > columns, shape(columns, k));
    call.name(Named::packed("input", 1, of, Read, &[rows, columns]).only_if(some(&[rows, k])));
    call.name(Named::packed("indices", 2, DType::I32, Write, &[rows, k]));
    if let Some(ptr) = values {
        desc = desc.with_values(ptr);
    }
    if g.one_in(3) {
        desc = desc.with_softmax(g.pick(&[SoftmaxOver::Found, SoftmaxOver::Row]));
        call.fault_if(!of.is_float(), dtype("values", of));
    }
    call.name(Named::packed("values", 3, of, Write, &[rows, k]).only_if(values.is_some()));
    call.judge_operands(desc.operands(OP))
}

pub(crate) fn sample(g: &mut Gen) -> bool {
    let (of, [rows, columns, len]) = (g.float(), g.extents());
    let (repetition, offset_ptr) = (g.maybe(3), g.maybe(4));
    let mut desc = SampleDesc::new(of, 1, 2, rows, columns, 7);
    let mut call = Call::default();
    call.fault_if(!of.is_float(), dtype("logits", of));
    if let Some(window) = repetition {
        call.fault_if(len > 32_768, shape(32_768, len));
        desc = desc.with_repetition(RepetitionPenalty { window, len, penalty: 1.5 });
    }
    call.fault_if(rows > 0 && columns == 0, shape(1, columns));
    if let Some(ptr) = offset_ptr {
        desc = desc.with_offset_ptr(ptr);
    }
    call.name(Named::packed("logits", 1, of, Read, &[rows, columns]));
    call.name(Named::packed("tokens", 2, DType::I32, Write, &[rows]));
    call.name(Named::packed("window", 3, DType::I32, Read, &[rows, len]).only_if(repetition.is_some()));
    let words = Named::packed("offset_ptr", 4, DType::U32, Read, &[2]);
    call.name(words.only_if(offset_ptr.is_some() && rows > 0));
    call.judge_operands(desc.operands(OP))
}

pub(crate) fn random(g: &mut Gen) -> bool {
    let (of, n, offset) = (g.float(), g.extent(), g.extent() as u64);
    let (distribution, affine) = if g.one_in(2) {
        (Distribution::Uniform { low: -2.0, high: 4.0 }, [-2.0, 6.0])
    } else {
        (Distribution::Normal { mean: 3.0, std: 0.5 }, [3.0, 0.5])
    };
    assert_eq!(distribution.affine(), affine);
    let mut packed = Packed::float("output", of);
    packed.name("output", Write, &[n]);
    let offset_ptr = g.maybe(2);
    let words = Named::packed("offset_ptr", 2, DType::U32, Read, &[2]);
    packed.call.name(words.only_if(offset_ptr.is_some() && n > 0));
    let mut desc = RandomDesc::new(1, of, n, 7, distribution).with_offset(offset);
    if let Some(ptr) = offset_ptr {
        desc = desc.with_offset_ptr(ptr);
    }
    assert_eq!((desc.seed, desc.offset, desc.offset_ptr), (7, offset, offset_ptr));
    packed.call.judge_operands(desc.operands(OP))
}
