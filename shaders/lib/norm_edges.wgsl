// The first and the last number of a row of a normalisation, where they share a word with another row.
//
// needs: lib/norm_row, the rows of vectors, weight_of and bias_of a column

fn edge_sum(pair: Pair, side: u32) -> f32 {
  let number = edge_of(pair.input, side);
  if RESIDUAL == ABSENT {
    return number;
  }
  return number + edge_of(pair.residual, side);
}

fn edge_normal(number: f32, mean: f32, scale: f32, side: u32) -> f32 {
  let column = select(0u, params.length - 1u, side == 1u);
  var result = (number - mean) * scale;
  if (params.scaled & 1u) != 0u {
    result *= weight_of(column);
  }
  if (params.scaled & 2u) != 0u {
    result += bias_of(column);
  }
  return result;
}
