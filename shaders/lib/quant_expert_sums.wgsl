// Products of rows of A with the matrices that indices choose from a stack, of which LANES invocations make parts. C has
// a row for each index, or for the weighted sum of several.
//
// needs: GATED, COLUMNS_PER_GROUP, lib/quant_expert_indices, lib/quant_sums for one row of A

// Columns of C that COLUMNS_PER_GROUP rows of B make: with a gate, those are a row of it and the one that it opens.
const RESULTS: u32 = COLUMNS_PER_GROUP >> GATED;

const_assert COLUMNS_PER_GROUP == 2u;

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
  for (var term = 0u; term < params.experts_per_sum; term++) {
    let pair = row * params.experts_per_sum + term;
    let expert = expert_of(pair);
    if expert < params.experts {
      let weight = weight_of(pair);
      let part = sums_of_lane(pair / params.sharing, lines_of(expert, column), lane);
      for (var x = 0u; x < COLUMNS_PER_GROUP; x++) {
        sums[x] += weight * part[x];
      }
    }
  }
  return sums;
}
