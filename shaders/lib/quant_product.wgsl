// What the kernels of C = residual + activation(alpha · A · Bᵀ + bias) with a quantised B share: their
// parameters, and what becomes of a sum.
//
// needs: TC, ACTIVATION, bias, c, residual_at, activate (lib/activate or lib/activate_half)

// The element of the product at (row, column), made of the sum there.
fn biased(sum: f32, column: u32) -> f32 {
  if (params.terms & 1u) == 0u {
    return params.alpha * sum;
  }
  return params.alpha * sum + f32(bias[params.bias + column]);
}

// Writes the element of C at (row, column).
fn store(x: f32, row: u32, column: u32) {
  let at = params.c + row * params.c_ld + column;
  var v = x;
  if (params.terms & 2u) != 0u {
    if (params.terms & 4u) != 0u {
      v += f32(c[at]);
    } else {
      v += residual_at(row, column);
    }
  }
  c[at] = TC(v);
}

// Writes the element of C at (row, column), made of the sum there.
fn finish(sum: f32, row: u32, column: u32) {
  store(activate(ACTIVATION, biased(sum, column)), row, column);
}
