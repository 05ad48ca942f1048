// Exponentials of differences to a maximum.

const LOWEST = -0x1.fffffep+127f;

// exp(x − m) for x ≤ m, 0 for an x of −∞. Drivers' exp is only asked for what it can do.
fn exp_below(x: f32, m: f32) -> f32 {
  return exp(max(x - max(m, LOWEST), -150.0));
}
