// What a normalisation reads, and its result (v − mean) · scale · weight + bias.
//
// needs: lib/norm_row, CENTRED, the weights of a column, the sum, the output

fn fetch(i: u32) -> Pair {
  var pair: Pair;
  if INPUT == OUTPUT {
    pair.input = load_output(i);
  } else {
    pair.input = x[params.x_offset + i];
  }
  if RESIDUAL == OUTPUT {
    pair.residual = load_output(i);
  } else if RESIDUAL == SUM_OUTPUT {
    pair.residual = load_sum(i);
  } else if RESIDUAL == BOUND {
    pair.residual = residual[params.residual_offset + i];
  }
  return pair;
}

// The weights and biases of a vector, as far as there are any.
struct Affine {
  weights: array<A, WIDTH>,
  biases: array<A, WIDTH>,
}

fn affine_of(row: u32, column: u32) -> Affine {
  var affine: Affine;
  if (params.scaled & 1u) != 0u {
    affine.weights = weights(row, column);
  }
  if (params.scaled & 2u) != 0u {
    affine.biases = biases(row, column);
  }
  return affine;
}

// The result of the elements of one vector of a row.
fn normal(v: array<A, WIDTH>, mean: f32, scale: f32, affine: Affine) -> Output {
  var numbers = v;
  for (var l = 0u; l < WIDTH; l++) {
    if CENTRED == 1u {
      numbers[l] -= mean;
    }
    numbers[l] *= scale;
  }
  if (params.scaled & 1u) != 0u {
    var factors = affine.weights;
    for (var l = 0u; l < WIDTH; l++) {
      numbers[l] *= factors[l];
    }
  }
  if (params.scaled & 2u) != 0u {
    var summands = affine.biases;
    for (var l = 0u; l < WIDTH; l++) {
      numbers[l] += summands[l];
    }
  }
  return pack_output(numbers);
}
