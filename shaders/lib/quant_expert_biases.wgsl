// The biases of a row's experts, multiplied by their weights, as sums of their products have them.
//
// needs: lib/quant_expert_indices, bias

fn biases_of(row: u32, column: u32) -> f32 {
  var sum = 0.0;
  for (var term = 0u; term < params.experts_per_sum; term++) {
    let pair = row * params.experts_per_sum + term;
    let expert = expert_of(pair);
    if expert < params.experts {
      sum += weight_of(pair) * bias[params.bias + expert * params.n + column];
    }
  }
  return sum;
}
