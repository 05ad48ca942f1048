//! Sorting, and tokens of logits.

use backend_api::desc::{SampleDesc, TopKDesc};
use backend_api::{BackendResult, DType};

use super::element::Element;
use super::memory::Memory;

/// Each row is known only as a whole: a number decides on the places of the others.
pub(super) fn top_k(memory: &mut Memory, desc: &TopKDesc) -> BackendResult<()> {
    memory.check("top_k", &desc.operands("top_k")?)?;
    let &TopKDesc { dtype, rows, columns, k, largest, .. } = desc;
    for row in 0..if k == 0 { 0 } else { rows } {
        let numbers = (0..columns).map(|i| memory.get(desc.input, dtype, row * columns + i).number(dtype));
        let sorted = numbers.collect::<Option<Vec<i64>>>().map(|numbers| {
            let mut sorted: Vec<(usize, i64)> = numbers.into_iter().enumerate().collect();
            sorted.sort_by_key(|&(_, number)| if largest { -number } else { number });
            sorted
        });
        for i in 0..k {
            let found = sorted.as_ref().map(|sorted| sorted[i]);
            let index = Element::of(DType::I32, found.map(|(index, _)| index as i64));
            memory.set(desc.indices, DType::I32, row * k + i, index);
            if let Some(values) = desc.values {
                // Probabilities aren't known.
                let number = found.filter(|_| desc.softmax.is_none()).map(|(_, number)| number);
                memory.set(values, dtype, row * k + i, Element::of(dtype, number));
            }
        }
    }
    Ok(())
}

/// The first token, which is what programs ask for: a temperature of 0, or a single token kept. The penalty is
/// 2, so that all logits stay whole when they are doubled before.
pub(super) fn sample(memory: &mut Memory, desc: &SampleDesc) -> BackendResult<()> {
    memory.check("sample", &desc.operands("sample")?)?;
    let &SampleDesc { dtype, rows, columns, .. } = desc;
    for row in 0..rows {
        let token = || {
            let mut logits: Vec<i64> = (0..columns)
                .map(|i| memory.get(desc.logits, dtype, row * columns + i).number(dtype))
                .collect::<Option<_>>()?;
            let mut punished = vec![false; columns];
            if let Some(repetition) = desc.repetition {
                for i in 0..repetition.len {
                    let token = memory.get(repetition.window, DType::I32, row * repetition.len + i);
                    let token = usize::try_from(token.number(DType::I32)?).ok();
                    if let Some(punished) = token.and_then(|token| punished.get_mut(token)) {
                        *punished = true;
                    }
                }
            }
            for (logit, punished) in logits.iter_mut().zip(punished) {
                *logit *= match (punished, *logit > 0) {
                    (true, true) => 1,
                    (true, false) => 4,
                    (false, _) => 2,
                };
            }
            let largest = logits.iter().max()?;
            logits.iter().position(|logit| logit == largest).map(|token| token as i64)
        };
        memory.set(desc.tokens, DType::I32, row, Element::of(DType::I32, token()));
    }
    Ok(())
}
