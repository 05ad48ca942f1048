// The functions of one number. Each is right at large and infinite arguments, and gives NaN for NaN, whatever the
// driver's own functions do.

fn relu(x: f32) -> f32 {
  return max_nan(x, 0.0);
}
fn sigmoid(x: f32) -> f32 { return 1.0 / (1.0 + exp(-x)); }
fn square(x: f32) -> f32 { return x * x; }
