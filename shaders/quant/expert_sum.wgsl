// Sums of the products of a row's experts, multiplied by their weights. Where an index is no expert's, its weight and
// its product may be anything.
//
// needs: TC, lib/quant_experts, lib/invocation_outputs

fn make_output(i: u32) {
  let row = i / params.n;
  let column = i - row * params.n;
  var sum = 0.0;
  for (var term = 0u; term < params.experts_per_sum; term++) {
    let pair = row * params.experts_per_sum + term;
    if indices[params.indices + pair] < params.experts {
      sum += weights[params.weights + pair] * products[params.products + pair * params.n + column];
    }
  }
  put(sum, row, column);
}
