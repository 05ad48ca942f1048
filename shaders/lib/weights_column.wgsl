// A weight and a bias for each column.

@group(0) @binding(2) var<storage, read> weight: array<V>;
@group(0) @binding(3) var<storage, read> bias: array<V>;

fn weights(row: u32, column: u32) -> array<A, WIDTH> {
  return unpack(weight[params.weight_offset + column]);
}

fn biases(row: u32, column: u32) -> array<A, WIDTH> {
  return unpack(bias[params.bias_offset + column]);
}
