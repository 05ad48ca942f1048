// What a normalisation reads, and its result (v − mean) · scale · weight + bias.
//
// needs: lib/norm_row, CENTRED, the weights of a column, the sum

fn fetch(i: u32) -> Pair {
  var pair: Pair;
  if INPUT == OUTPUT {
    pair.input = y[params.y_offset + i];
  } else {
    pair.input = x[params.x_offset + i];
  }
  if RESIDUAL == OUTPUT {
    pair.residual = y[params.y_offset + i];
  } else if RESIDUAL == SUM_OUTPUT {
    pair.residual = load_sum(i);
  } else if RESIDUAL == BOUND {
    pair.residual = residual[params.residual_offset + i];
  }
  return pair;
}

// The result of the elements of one vector of a row.
fn normal(v: array<A, WIDTH>, mean: f32, scale: f32, row: u32, column: u32) -> V {
  var numbers = v;
  for (var l = 0u; l < WIDTH; l++) {
    if CENTRED == 1u {
      numbers[l] -= mean;
    }
    numbers[l] *= scale;
  }
  if (params.scaled & 1u) != 0u {
    var factors = weights(row, column);
    for (var l = 0u; l < WIDTH; l++) {
      numbers[l] *= factors[l];
    }
  }
  if (params.scaled & 2u) != 0u {
    var summands = biases(row, column);
    for (var l = 0u; l < WIDTH; l++) {
      numbers[l] += summands[l];
    }
  }
  return pack(numbers);
}
