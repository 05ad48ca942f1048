// A weight and a bias of f32 for each column, beside rows of another type.

@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;

fn weights(row: u32, column: u32) -> array<A, WIDTH> {
  var numbers: array<A, WIDTH>;
  for (var l = 0u; l < WIDTH; l++) {
    numbers[l] = weight[params.weight_offset + column * WIDTH + l];
  }
  return numbers;
}

fn biases(row: u32, column: u32) -> array<A, WIDTH> {
  var numbers: array<A, WIDTH>;
  for (var l = 0u; l < WIDTH; l++) {
    numbers[l] = bias[params.bias_offset + column * WIDTH + l];
  }
  return numbers;
}
