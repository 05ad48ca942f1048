// A weight and a bias of f32 for each column of rows of f16 in words, which begin at any element.
//
// needs: lib/row_words

@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;

fn weights(row: u32, column: u32) -> array<A, WIDTH> {
  let at = params.weight_offset + column_of(row, column);
  return array<A, WIDTH>(weight[at], weight[at + 1u]);
}

fn biases(row: u32, column: u32) -> array<A, WIDTH> {
  let at = params.bias_offset + column_of(row, column);
  return array<A, WIDTH>(bias[at], bias[at + 1u]);
}

fn weight_of(column: u32) -> f32 {
  return weight[params.weight_offset + column];
}

fn bias_of(column: u32) -> f32 {
  return bias[params.bias_offset + column];
}
