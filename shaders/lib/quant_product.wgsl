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

// What is added to the element of the product at (row, column).
fn added_at(row: u32, column: u32) -> f32 {
  if (params.terms & 2u) == 0u {
    return 0.0;
  }
  if (params.terms & 4u) != 0u {
    return f32(c[params.c + row * params.c_ld + column]);
  }
  return residual_at(row, column);
}

// Writes the element of C at (row, column), of which `added` is what is added to the product.
fn store_sum(x: f32, added: f32, row: u32, column: u32) {
  let v = select(x, x + added, (params.terms & 2u) != 0u);
  c[params.c + row * params.c_ld + column] = TC(v);
}

// Writes the element of C at (row, column).
fn store(x: f32, row: u32, column: u32) {
  store_sum(x, added_at(row, column), row, column);
}

// Writes the element of C at (row, column), made of the sum there.
fn finish(sum: f32, row: u32, column: u32) {
  store(activate(ACTIVATION, biased(sum, column)), row, column);
}
