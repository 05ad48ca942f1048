// The error function and the activations of neural networks that lib/unary doesn't have.

fn unary_erf(x: f32) -> f32 {
  if is_nan(x) {
    return x;
  }
  let y = unary_abs(x);
  if y > 1.0 {
    // erfc(y) = 2Φ(−√2 · y).
    return with_sign(1.0 - 2.0 * normal_tail(min(1.4142135 * y, 14.5)), x);
  }
  // erf(y) / y, to 1.2e-9 of itself.
  let z = x * x;
  var p = 7.85386146e-05;
  p = p * z - 0.000801019371;
  p = p * z + 0.00518832775;
  p = p * z - 0.0268538129;
  p = p * z + 0.112835854;
  p = p * z - 0.37612626;
  p = p * z + 1.12837911;
  return p * x;
}

fn unary_softplus(x: f32) -> f32 {
  let e = exp_minus(min(unary_abs(x), 110.0));
  return select(max(x, 0.0) + unary_log1p(e), x, is_nan(x));
}

fn unary_softsign(x: f32) -> f32 {
  if is_nan(x) {
    return x;
  }
  if is_inf(x) {
    return with_sign(1.0, x);
  }
  return divide(x, 1.0 + unary_abs(x));
}

// x · tanh(ln(1 + e)) with e = eˣ, of which the tangent is (e² + 2e) / (e² + 2e + 2).
fn unary_mish(x: f32) -> f32 {
  if is_nan(x) || x > 20.0 {
    // The tangent rounds to 1.
    return x;
  }
  if x < -17.0 {
    // It rounds to e, which may be subnormal though the product with x isn't.
    let root = unary_exp(0.5 * x);
    return select(x * root * root, 0.0, x < -220.0);
  }
  let e = unary_exp(x);
  let part = e * (e + 2.0);
  return x * (part / (part + 2.0));
}

// Comparisons with NaN need not be false in WGSL, so it is told apart first.

fn unary_elu(x: f32, alpha: f32) -> f32 {
  if is_nan(x) || !is_negative(x) {
    return x;
  }
  return alpha * unary_expm1(x);
}

fn unary_selu(x: f32, alpha: f32, beta: f32) -> f32 {
  return beta * unary_elu(x, alpha);
}

fn unary_celu(x: f32, alpha: f32) -> f32 {
  if is_nan(x) || !is_negative(x) {
    return x;
  }
  return alpha * unary_expm1(divide(x, alpha));
}

fn unary_leaky_relu(x: f32, alpha: f32) -> f32 {
  if is_nan(x) || !is_negative(x) {
    return x;
  }
  return alpha * x;
}

fn unary_thresholded_relu(x: f32, alpha: f32) -> f32 {
  return select(0.0, x, is_nan(x) || x > alpha);
}

fn unary_shrink(x: f32, alpha: f32, beta: f32) -> f32 {
  if is_nan(x) {
    return x;
  }
  return select(select(0.0, x - beta, x > alpha), x + beta, x < -alpha);
}

fn unary_hard_sigmoid(x: f32, alpha: f32, beta: f32) -> f32 {
  return min_nan(max_nan(alpha * x + beta, 0.0), 1.0);
}

fn unary_hard_swish(x: f32, alpha: f32, beta: f32) -> f32 {
  let gate = unary_hard_sigmoid(x, alpha, beta);
  return select(x * gate, 0.0, gate == 0.0);
}

fn unary_swish(x: f32, alpha: f32) -> f32 {
  let t = alpha * x;
  if is_nan(t) {
    return nan();
  }
  // The product with an infinite x is 0 too.
  return select(times_sigmoid(x, t), 0.0, t < -220.0);
}
