//! Failing programs made smaller.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Call, Program};

/// A smaller program for which `fails` still holds: without the calls that it can do without, and with
/// smaller sizes. Stops when nothing more helps, or when `limit` is over.
pub fn shrink(program: &Program, limit: Duration, mut fails: impl FnMut(&Program) -> bool) -> Program {
    let mut best = program.clone();
    let start = Instant::now();
    let mut improves = |best: &mut Program, candidate: Program| {
        let better = start.elapsed() < limit && fails(&candidate);
        if better {
            *best = candidate;
        }
        better
    };
    loop {
        let before = best.clone();
        for thread in (0..best.threads.len()).rev() {
            let mut candidate = best.clone();
            candidate.threads.remove(thread);
            if !candidate.threads.is_empty() {
                improves(&mut best, candidate);
            }
        }
        for thread in 0..best.threads.len() {
            drop_calls(&mut best, thread, &mut improves);
            lower_numbers(&mut best, thread, &mut improves);
        }
        if best == before || start.elapsed() >= limit {
            return best;
        }
    }
}

type Improves<'a> = dyn FnMut(&mut Program, Program) -> bool + 'a;

/// Drops runs of calls, long ones first.
fn drop_calls(best: &mut Program, thread: usize, improves: &mut Improves<'_>) {
    let mut run = best.threads[thread].len().div_ceil(2);
    while run > 0 {
        let mut at = 0;
        while at < best.threads[thread].len() {
            let mut candidate = best.clone();
            let end = (at + run).min(candidate.threads[thread].len());
            candidate.threads[thread].drain(at..end);
            if !improves(best, candidate) {
                at += run;
            }
        }
        run /= 2;
    }
}

/// Lowers each number of each call, to 0, to 1, or by half.
fn lower_numbers(best: &mut Program, thread: usize, improves: &mut Improves<'_>) {
    for at in 0..best.threads[thread].len() {
        let mut which = 0;
        while let Some(lower) = lowered(&best.threads[thread][at], which) {
            let improved = lower.into_iter().any(|call| {
                let mut candidate = best.clone();
                candidate.threads[thread][at] = call;
                improves(best, candidate)
            });
            which += usize::from(!improved);
        }
    }
}

/// The call with its `which`th number lowered in some ways; `None` if it hasn't as many numbers.
fn lowered(call: &Call, which: usize) -> Option<Vec<Call>> {
    let mut value = serde_json::to_value(call).ok()?;
    let number = numbers(&mut value).into_iter().nth(which)?.as_u64();
    let mut smaller = number.map_or(Vec::new(), |number| vec![0, 1, number / 2, number.saturating_sub(1)]);
    smaller.dedup();
    let changed =
        smaller.into_iter().filter(|&to| number.is_some_and(|number| to < number)).filter_map(|to| {
            let mut value = value.clone();
            **numbers(&mut value).get_mut(which)? = to.into();
            serde_json::from_value(value).ok()
        });
    Some(changed.collect())
}

fn numbers(value: &mut Value) -> Vec<&mut Value> {
    match value {
        Value::Number(_) => vec![value],
        Value::Array(values) => values.iter_mut().flat_map(numbers).collect(),
        Value::Object(fields) => fields.values_mut().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Profile, Slot, generate};
    use super::*;

    #[test]
    fn what_does_not_matter_is_dropped() {
        let mut program = generate("shrink", &Profile::threads());
        program.threads[1].insert(2, Call::Alloc { to: Slot(3), bytes: 1234 });
        let fails = |program: &Program| program.has(|call| matches!(call, Call::Alloc { bytes: 100.., .. }));
        let small = shrink(&program, Duration::from_secs(60), fails);
        assert_eq!(small.len(), 1, "{small}");
        assert!(small.has(|call| matches!(call, Call::Alloc { bytes: 100, .. })), "{small}");
    }
}
