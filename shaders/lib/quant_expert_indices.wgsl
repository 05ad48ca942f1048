// The experts that indices choose.
//
// An index is compared with the experts that are bound, `params.experts` from `params.first` on. What others choose is
// another launch's; the product of an index that is none of `params.experts_of_all` is 0, and the first launch's.
//
// needs: GATED, lib/quant_experts, indices, factors: the weights of sums, or else the biases of the experts that are bound

// The expert of an index among those that are bound, or a number past them.
fn expert_of(pair: u32) -> u32 {
  return indices[params.indices + pair] - params.first;
}

// Whether this launch writes a row of C.
fn is_written(row: u32) -> bool {
  if (params.terms & IS_SUM) != 0u {
    return true;
  }
  let is_none = params.first == 0u && indices[params.indices + row] >= params.experts_of_all;
  return is_none || expert_of(row) < params.experts;
}

// What is added to the product of an index with a row of its expert's matrix, where products aren't summed.
fn bias_of(pair: u32, line: u32) -> f32 {
  let expert = expert_of(pair);
  if (params.terms & (HAS_BIAS | IS_SUM)) != HAS_BIAS || expert >= params.experts {
    return 0.0;
  }
  return factors[params.bias + expert * (params.n << GATED) + line];
}

// By what the product with an index's expert is multiplied.
fn weight_of(pair: u32) -> f32 {
  if (params.terms & IS_SUM) == 0u {
    return 1.0;
  }
  return factors[params.weights + pair];
}
