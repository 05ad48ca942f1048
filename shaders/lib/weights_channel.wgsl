// A weight and a bias for each channel. A row is several channels of neighbouring elements, and every
// `groups` rows the channels are the same again.
//
// needs: W, the type of weights

@group(0) @binding(2) var<storage, read> weight: array<W>;
@group(0) @binding(3) var<storage, read> bias: array<W>;

fn channel(row: u32, column: u32) -> u32 {
  return row % params.groups * params.channels + column / params.spatial;
}

fn repeated(x: f32) -> array<A, WIDTH> {
  var numbers: array<A, WIDTH>;
  for (var l = 0u; l < WIDTH; l++) {
    numbers[l] = x;
  }
  return numbers;
}

fn weights(row: u32, column: u32) -> array<A, WIDTH> {
  return repeated(f32(weight[params.weight_offset + channel(row, column)]));
}

fn biases(row: u32, column: u32) -> array<A, WIDTH> {
  return repeated(f32(bias[params.bias_offset + channel(row, column)]));
}
