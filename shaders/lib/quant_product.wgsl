// What the kernels of C = residual + activation(alpha · A · Bᵀ + bias) with a quantised B share: their
// parameters, and what becomes of a sum.
//
// needs: TC, ACTIVATION, bias, c, residual_at, activate (lib/activate or lib/activate_half)

struct Params {
  m: u32,
  n: u32,
  k: u32,
  // Units of 128 weights in a row of B.
  units: u32,
  tiles_n: u32,
  tiles: u32,
  // Of the planes: in vectors of 16 bytes for the quants, in `ScaleWords` for the scales, in words for the others.
  quants: u32,
  quants_row: u32,
  high: u32,
  high_row: u32,
  scales: u32,
  scales_row: u32,
  extra: u32,
  extra_row: u32,
  // The logarithm of the weights that share a scale.
  group: u32,
  a: u32,
  a_ld: u32,
  c: u32,
  c_ld: u32,
  bias: u32,
  residual: u32,
  residual_ld: u32,
  // Bit 0: there is a bias, 1: a residual, 2: it is C.
  terms: u32,
  alpha: f32,
  // Rows of B from a gate's row to the one that it opens.
  half: u32,
  // Vectors of eight elements before the norm's weight.
  norm: u32,
  eps: f32,
}

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
