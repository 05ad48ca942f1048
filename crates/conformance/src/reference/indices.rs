//! Tables by index, and drawn tokens.

use backend_api::desc::{SampleDesc, ScatterDesc};
use backend_api::{DType, random};

use super::{Bytes, Expected};
use crate::float::round_to;
use crate::oracle::sample::{Settings, tokens};
use crate::oracle::scatter::scattered;
use crate::want::Want;

pub(super) fn scatter(desc: &ScatterDesc, memory: &Bytes) -> Expected {
    let &ScatterDesc { rows, columns, count, outer, dtype, source_dtype, .. } = desc;
    if !dtype.is_float() || desc.op == backend_api::ScatterOp::Assign {
        return Expected::moved(desc.table, dtype, source_dtype);
    }
    let table = memory.numbers(desc.table, dtype);
    let source = memory.numbers(desc.source, source_dtype);
    let indices = memory.numbers(desc.indices, DType::U32);
    let mut lists: Vec<Vec<f64>> = vec![Vec::new(); outer * rows * columns];
    for (at, &x) in source.iter().take(outer * count * columns).enumerate() {
        let (o, i, c) = (at / columns / count, at / columns % count, at % columns);
        let index = indices[if desc.per_element { at } else { i }] as usize;
        if index < rows {
            lists[(o * rows + index) * columns + c].push(round_to(dtype, x));
        }
    }
    let wants = lists.iter().enumerate();
    let wants = wants.filter_map(|(at, list)| Some((at, scattered(desc.op, dtype, table[at], list)?)));
    Expected::computed(desc.table, dtype, wants.collect())
}

pub(super) fn sample(desc: &SampleDesc, memory: &Bytes) -> Expected {
    let &SampleDesc { rows, columns, temperature, top_k, top_p, min_p, .. } = desc;
    let logits = memory.numbers(desc.logits, desc.dtype);
    let repetition = desc.repetition;
    let window = memory.optional(repetition.map(|repetition| repetition.window), DType::I32);
    let len = repetition.map_or(0, |repetition| repetition.len);
    let penalty = repetition.map_or(1.0, |repetition| repetition.penalty);
    let settings = Settings { temperature, top_k, top_p, min_p, penalty };
    let first = desc.offset.wrapping_add(memory.word_pair(desc.offset_ptr));
    let wants = (0..rows).map(|row| {
        let at = first.wrapping_add(row as u64);
        let number = random::uniforms(random::philox_block(desc.seed, at / 4))[(at % 4) as usize];
        let row_logits = &logits[row * columns..][..columns];
        let possible = tokens(settings, row_logits, &window[row * len..][..len], f64::from(number));
        Want::AnyOf(possible.into_iter().map(|token| Want::Exact(token as f64)).collect())
    });
    Expected::packed(desc.tokens, DType::I32, wants)
}
