// The clamped gated linear unit of gpt-oss, of f32.

fn binary_swiglu_oai(a: f32, b: f32) -> f32 {
  if is_nan(a) {
    return a;
  }
  if is_nan(b) {
    return b;
  }
  // From −129 down, the gate is zero.
  let gate = clamp(a, -129.0, 7.0);
  return times_sigmoid(gate, 1.702 * gate) * (clamp(b, -7.0, 7.0) + 1.0);
}
