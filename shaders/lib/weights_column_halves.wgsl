// A weight and a bias for each column of rows of f16 in words, which begin at any element.
//
// needs: lib/row_words

@group(0) @binding(2) var<storage, read> weight: array<u32>;
@group(0) @binding(3) var<storage, read> bias: array<u32>;

fn weights(row: u32, column: u32) -> array<A, WIDTH> {
  let at = params.weight_offset + column_of(row, column);
  var word = weight[at / 2u];
  if at % 2u == 1u {
    word = (word >> 16u) | (weight[at / 2u + 1u] << 16u);
  }
  return unpack(word);
}

fn biases(row: u32, column: u32) -> array<A, WIDTH> {
  let at = params.bias_offset + column_of(row, column);
  var word = bias[at / 2u];
  if at % 2u == 1u {
    word = (word >> 16u) | (bias[at / 2u + 1u] << 16u);
  }
  return unpack(word);
}

fn weight_of(column: u32) -> f32 {
  let at = params.weight_offset + column;
  return unpack2x16float(weight[at / 2u] >> (at % 2u * 16u)).x;
}

fn bias_of(column: u32) -> f32 {
  let at = params.bias_offset + column;
  return unpack2x16float(bias[at / 2u] >> (at % 2u * 16u)).x;
}
