//! Mixtures of experts in f64.

use crate::oracle::{Experts, add, dot, log_softmax, opened, product, silu};

/// gpt-oss's unit, from its authors' reference.
fn clamped(gate: &[f64], up: &[f64]) -> Vec<f64> {
    let one = |(&gate, &up): (&f64, &f64)| {
        let (gate, up) = (gate.min(7.0), up.clamp(-7.0, 7.0));
        gate / (1.0 + (-1.702 * gate).exp()) * (up + 1.0)
    };
    gate.iter().zip(up).map(one).collect()
}

/// The sum of what the experts with the largest probabilities make of `h`.
pub(crate) fn mixture<'a>(experts: &Experts, tensor: &dyn Fn(&str) -> &'a [f64], h: &[f64]) -> Vec<f64> {
    let w = |name: &str| tensor(&format!("{name}.weight"));
    let mut logits = product(w("ffn_gate_inp"), h);
    if experts.clamped {
        add(&mut logits, tensor("ffn_gate_inp.bias"));
    }
    let probabilities: Vec<f64> = log_softmax(&logits).iter().map(|p| p.exp()).collect();
    let mut order: Vec<usize> = (0..experts.count).collect();
    order.sort_by(|&one, &other| probabilities[other].total_cmp(&probabilities[one]));
    let chosen = &order[..experts.used];
    let sum: f64 = chosen.iter().map(|&expert| probabilities[expert]).sum();
    let size = experts.inner * h.len();
    let mut update = vec![0.0; h.len()];
    for &expert in chosen {
        let of_expert = |name: &str, x: &[f64]| {
            let mut y = product(&w(name)[expert * size..][..size], x);
            if experts.clamped {
                let len = y.len();
                add(&mut y, &tensor(&format!("{name}.bias"))[expert * len..][..len]);
            }
            y
        };
        let [gate, up] = ["ffn_gate_exps", "ffn_up_exps"].map(|name| of_expert(name, h));
        let inside = if experts.clamped { clamped(&gate, &up) } else { opened(&gate, &up, silu) };
        let weight = experts.scale * probabilities[expert] / if experts.normalised { sum } else { 1.0 };
        let result = of_expert("ffn_down_exps", &inside);
        update.iter_mut().zip(result).for_each(|(update, x)| *update += weight * x);
    }
    if experts.shared > 0 {
        let share = if experts.share { 1.0 / (1.0 + (-dot(w("ffn_gate_inp_shexp"), h)).exp()) } else { 1.0 };
        let [gate, up] = ["ffn_gate_shexp", "ffn_up_shexp"].map(|name| product(w(name), h));
        let result = product(w("ffn_down_shexp"), &opened(&gate, &up, silu));
        update.iter_mut().zip(result).for_each(|(update, x)| *update += share * x);
    }
    update
}
