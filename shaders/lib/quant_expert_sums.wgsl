// Products of rows of A with the matrices that indices choose from a stack, of which LANES invocations make parts. C has
// a row for each index, or for the weighted sum of several.
//
// An index is compared with the experts that are bound, `params.experts` from `params.first` on. What others choose is
// another launch's; the product of an index that is none of `params.experts_of_all` is 0, and the first launch's.
//
// needs: GATED, SPAN, lib/quant_experts, lib/quant_sums for one row of A, indices, factors: the weights of sums, or
// else the biases of the experts that are bound

// Columns of C that SPAN rows of B make: with a gate, those are a row of it and the one that it opens.
const RESULTS: u32 = SPAN >> GATED;

const_assert SPAN == 2u;

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

// What is added to the product of an index with a row of its expert's matrix.
fn bias_of(pair: u32, line: u32) -> f32 {
  let expert = expert_of(pair);
  if (params.terms & HAS_BIAS) == 0u || expert >= params.experts {
    return 0.0;
  }
  return factors[params.bias + expert * (params.n << GATED) + line];
}

// The rows of an expert's matrix for a column of C.
fn lines_of(expert: u32, column: u32) -> Lines {
  let first = expert * (params.n << GATED);
  let last = params.n - 1u;
  if GATED == 1u {
    let line = first + min(column, last);
    return Lines(line, line + params.n);
  }
  return Lines(first + min(column, last), first + min(column + 1u, last));
}

// The products of the experts of a row of C, multiplied by their weights if they are summed.
fn sums_of_experts(row: u32, column: u32, lane: u32) -> Sums {
  var sums: Sums;
  for (var turn = 0u; turn < params.turns; turn++) {
    let pair = row * params.turns + turn;
    let expert = expert_of(pair);
    if expert < params.experts {
      var weight = 1.0;
      if (params.terms & IS_SUM) != 0u {
        weight = factors[params.weights + pair];
      }
      let part = sums_of_lane(pair / params.sharing, lines_of(expert, column), lane);
      for (var x = 0u; x < SPAN; x++) {
        sums[x] += weight * part[x];
      }
    }
  }
  return sums;
}
