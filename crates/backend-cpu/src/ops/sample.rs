//! Tokens drawn at random from rows of logits.

use backend_api::desc::SampleDesc;
use backend_api::{BackendResult, random};
use bytemuck::cast_slice_mut;

use super::top_k::ascending;
use crate::access::Call;
use crate::element::{Element, with_float};
use crate::parallel::Cores;

/// Rows in the share of one thread.
const GRAIN: usize = 1;

/// A token of each row.
pub(crate) fn sample(call: Call<'_>, desc: &SampleDesc) -> BackendResult<()> {
    let operands = desc.operands(call.op)?;
    call.access(&operands, |[logits, _, window, offset], tokens| {
        let tokens: &mut [i32] = cast_slice_mut(tokens);
        let mut desc = *desc;
        if let [low, high] = *offset.elements::<u32>() {
            desc.offset = desc.offset.wrapping_add(u64::from(high) << 32 | u64::from(low));
        }
        let window: &[i32] = window.elements();
        with_float!(desc.dtype, T => {
            let logits: &[T] = logits.elements();
            Cores::run(logits.len().saturating_mul(16), |cores| {
                cores.chunks(tokens, 1, GRAIN, &|first, chunk: &mut [i32]| {
                    for (i, token) in chunk.iter_mut().enumerate() {
                        let row = first + i;
                        let mut numbers = vec![0.0; desc.columns];
                        T::load(&logits[row * desc.columns..][..desc.columns], &mut numbers);
                        let len = window.len() / desc.rows;
                        let number = random_number(desc.seed, desc.offset.wrapping_add(row as u64));
                        *token = draw(&desc, &mut numbers, &window[row * len..][..len], number);
                    }
                });
            });
        });
    })
}

/// Number `at` of a stream.
fn random_number(seed: u64, at: u64) -> f32 {
    random::uniforms(random::philox_block(seed, at / 4))[(at % 4) as usize]
}

fn draw(desc: &SampleDesc, logits: &mut [f32], window: &[i32], number: f32) -> i32 {
    let [temperature, top_p, min_p, penalty] = desc.numbers();
    let mut recent: Vec<usize> = window.iter().filter_map(|&token| usize::try_from(token).ok()).collect();
    recent.sort_unstable();
    recent.dedup();
    for token in recent {
        if let Some(logit) = logits.get_mut(token) {
            *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
        }
    }
    let key = |x: f32| if x.is_nan() { !ascending(f32::NEG_INFINITY) } else { !ascending(x) };
    let mut order: Vec<(u32, u32)> = logits.iter().map(|&x| key(x)).zip(0..).collect();
    let kept = desc.kept();
    if kept < order.len() {
        order.select_nth_unstable(kept - 1);
        order.truncate(kept);
    }
    order.sort_unstable();
    let logit = |place: usize| f64::from(logits[order[place].1 as usize]);
    let first = logit(0);
    if temperature == 0.0 || !first.is_finite() {
        return order[0].1.cast_signed();
    }
    let power = |place: usize| {
        let logit = logit(place);
        if logit.is_nan() { f64::NEG_INFINITY } else { (logit - first) / f64::from(temperature) }
    };
    let weight = |place: usize| power(place).exp();
    // A weight just below 1 is rounded to 1, its logarithm isn't.
    let least = f64::from(min_p).ln();
    let weights: Vec<f64> = (0..kept).map(weight).collect();
    let share = f64::from(top_p) * weights.iter().sum::<f64>();
    let (mut sum, mut last) = (0.0, 0);
    for (place, &weight) in weights.iter().enumerate() {
        if place > 0 && (sum >= share || power(place) < least) {
            break;
        }
        (sum, last) = (sum + weight, place);
    }
    let (bound, mut before) = (f64::from(number) * sum, 0.0);
    let chosen = weights[..=last].iter().position(|weight| {
        before += weight;
        before > bound
    });
    order[chosen.unwrap_or(last)].1.cast_signed()
}
