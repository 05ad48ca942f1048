//! Lookups, scatters, rotations, sorts and samples.

use backend_api::desc::{
    GatherDesc, HeadLayout, IndexShape, Matrix, QkNorm, RepetitionPenalty, RopeAppendDesc, RopeAppendShape,
    RopeDesc, RopeShape, RopeStyle, RopeTables, SampleDesc, ScatterDesc, SoftmaxOver, TopKDesc,
};
use backend_api::{Command, DType, ScatterOp};

use super::Run;
use super::draw::Draw;

/// Tables, rows, columns and indices, of which table or result is large.
fn lookup(draw: &mut Draw, dtype: DType) -> (usize, IndexShape, bool) {
    let total = draw.elements(dtype);
    let [outer, rows, columns] = draw.extents(total);
    let other = draw.elements(dtype);
    let outer = outer.min(9);
    let count = if draw.one_in(2) { draw.up_to(40) } else { (other / columns / outer).clamp(1, 4000) };
    (outer, IndexShape { rows: rows.max(total / columns / outer / 2), columns, count }, draw.one_in(3))
}

pub(super) fn gather(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.dtype();
    let (outer, shape, per_element) = lookup(draw, dtype);
    let IndexShape { rows, columns, count } = shape;
    let found = outer * count * columns;
    let table = draw.memory(dtype, outer * rows * columns);
    let indices = draw.indices(if per_element { found } else { count }, rows);
    let output = draw.memory(dtype, found);
    let desc = GatherDesc::new(dtype, table, indices, output, shape).with_outer(outer);
    run(draw, "gather", Command::Gather(&if per_element { desc.with_per_element() } else { desc }));
}

pub(super) fn scatter(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.dtype();
    let (outer, shape, per_element) = lookup(draw, dtype);
    let IndexShape { rows, columns, count } = shape;
    let arriving = outer * count * columns;
    let op = draw.pick(ScatterOp::ALL);
    let converts = op == ScatterOp::Assign && dtype.is_float() && draw.one_in(3);
    let source_dtype = match dtype {
        DType::F32 if converts => DType::F16,
        DType::F16 if converts => DType::F32,
        _ => dtype,
    };
    let table = draw.memory(dtype, outer * rows * columns);
    let indices = draw.indices(if per_element { arriving } else { count }, rows);
    let source = draw.memory(source_dtype, arriving);
    let desc = ScatterDesc::new(op, dtype, table, indices, source, shape);
    let desc = desc.with_outer(outer).with_source_dtype(source_dtype);
    run(draw, "scatter", Command::Scatter(&if per_element { desc.with_per_element() } else { desc }));
}

/// The vectors of `[batch, heads, tokens, dim]` packed, or with tokens before heads, or before sequences.
pub(super) fn head_layout(draw: &mut Draw, [batch, heads, tokens, dim]: [usize; 4]) -> HeadLayout {
    let offset = if draw.one_in(3) { draw.below(9) } else { 0 };
    match draw.below(4) {
        0 => HeadLayout { offset, batch: tokens * heads * dim, head: dim, token: heads * dim },
        1 => HeadLayout { offset, batch: heads * dim, head: dim, token: batch * heads * dim },
        _ => HeadLayout { offset, batch: heads * tokens * dim, head: tokens * dim, token: dim },
    }
}

pub(super) fn rope(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.float();
    let total = draw.elements(dtype);
    let half_dim = draw.up_to(32);
    let [batch, heads, seq] = draw.extents(total / (2 * half_dim));
    let shape = RopeShape { batch, heads, seq, head_dim: 2 * half_dim };
    let max_position = draw.up_to(60);
    let pairs = if draw.one_in(3) { draw.up_to(half_dim) } else { half_dim };
    let n = batch * heads * seq * 2 * half_dim;
    let tables = [(); 2].map(|()| draw.memory(DType::F32, max_position * pairs));
    let tables = RopeTables { cos: tables[0], sin: tables[1], max_position };
    let x = draw.memory(dtype, n + 9);
    let in_place = draw.one_in(3);
    let y = if in_place { x } else { draw.memory(dtype, n + 9) };
    let style = draw.pick(&[RopeStyle::Half, RopeStyle::Interleaved]);
    let mut desc = RopeDesc::new(dtype, x, y, tables, shape, style).with_rotary_dim(2 * pairs);
    let extents = [batch, heads, seq, 2 * half_dim];
    desc.input_layout = Some(head_layout(draw, extents));
    desc.output_layout = if in_place { desc.input_layout } else { Some(head_layout(draw, extents)) };
    desc.positions = draw.maybe(|draw| draw.indices(batch * seq, max_position));
    run(draw, "rope", Command::Rope(&desc));
}

pub(super) fn rope_append(draw: &mut Draw, run: Run<'_>) {
    let (dtype, cache_dtype) = (draw.float(), draw.float());
    let total = draw.elements(dtype);
    let (half_dim, heads, kv_heads) = (draw.up_to(32), draw.up_to(5), draw.up_to(3));
    let head_dim = 2 * half_dim;
    let [width, cached] = [(heads + 2 * kv_heads) * head_dim, 2 * kv_heads * head_dim];
    let rows = (total / width).clamp(1, 300);
    let cache_rows = (draw.elements(cache_dtype) / cached).max(1);
    let [ld, cache_ld] = [width + draw.up_to(9), cached + draw.up_to(9)];
    let max_position = draw.up_to(60);
    let pairs = if draw.one_in(3) { draw.up_to(half_dim) } else { half_dim };
    let tables = [(); 2].map(|()| draw.memory(DType::F32, max_position * pairs));
    let tables = RopeTables { cos: tables[0], sin: tables[1], max_position };
    let qkv = Matrix::new(draw.memory(dtype, rows * ld), dtype, ld);
    let cache = Matrix::new(draw.memory(cache_dtype, cache_rows * cache_ld), cache_dtype, cache_ld);
    let shape = RopeAppendShape { rows, heads, kv_heads, head_dim, cache_rows };
    let (positions, indices) = (draw.indices(rows, max_position), draw.indices(rows, cache_rows));
    let desc = RopeAppendDesc::new(qkv, cache, tables, shape, positions, indices);
    let style = draw.pick(&[RopeStyle::Half, RopeStyle::Interleaved]);
    let mut desc = desc.with_style(style).with_rotary_dim(2 * pairs);
    if draw.one_in(2) {
        let [query, key] = [(); 2].map(|()| draw.memory(dtype, head_dim));
        desc = desc.with_norm(QkNorm::new(query, key, 1e-3));
    }
    run(draw, "rope_append", Command::RopeAppend(&desc));
}

pub(super) fn top_k(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.dtype();
    let total = draw.elements(dtype);
    let [rows, columns] = draw.extents(total);
    let k = if draw.one_in(2) { draw.up_to(columns.min(20)) } else { draw.up_to(columns) };
    let (input, indices) = (draw.memory(dtype, rows * columns), draw.memory(DType::I32, rows * k));
    let mut desc = TopKDesc::new(dtype, input, indices, rows, columns, k);
    desc.largest = draw.one_in(2);
    desc.values = draw.maybe(|draw| draw.memory(dtype, rows * k));
    if dtype.is_float() {
        desc.softmax = draw.maybe(|draw| draw.pick(&[SoftmaxOver::Found, SoftmaxOver::Row]));
    }
    run(draw, "top_k", Command::TopK(&desc));
}

pub(super) fn sample(draw: &mut Draw, run: Run<'_>) {
    let dtype = draw.float();
    let total = draw.elements(dtype);
    let [rows, columns] = draw.extents(total);
    let (logits, tokens) = (draw.memory(dtype, rows * columns), draw.memory(DType::I32, rows));
    let mut desc = SampleDesc::new(dtype, logits, tokens, rows, columns, 3).with_top_k(draw.below(50));
    if draw.one_in(2) {
        let len = draw.up_to(60);
        let window = draw.indices(rows * len, columns);
        desc = desc.with_repetition(RepetitionPenalty { window, len, penalty: 1.5 });
    }
    run(draw, "sample", Command::Sample(&desc));
}
