// What the sum of a slice's exponentials does to each of its elements.
//
// needs: LOG

// 1 / sum, or ln sum; NaN for a slice of nothing but −∞, or with +∞ or NaN.
fn softmax_scale(m: f32, sum: f32) -> f32 {
  var scale = 1.0 / sum;
  if LOG == 1u {
    scale = unary_log(sum);
  }
  return select(scale, nan(), is_nan(m) || is_inf(m));
}
