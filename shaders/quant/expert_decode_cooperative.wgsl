// Products of rows of f16 of A with the matrices of a quantised stack that indices choose for them, like
// quant/expert_decode, multiplied by the device's tensor cores, which add in f32.
//
// A workgroup makes COLUMNS columns of the product for a row of C, half of which are gates with GATED. Of its SUBGROUPS subgroups,
// `params.shares` share k, which divide them; where C's rows are sums, others have experts of their own.
//
// k is whole blocks, or whole units with HALF_BLOCKS.
//
// needs: TA = f16, TC, SUBGROUPS, HALF_BLOCKS, GATED, GATE, lib/gate, lib/quant_expert_indices, what sums
// have of biases (lib/quant_expert_biases or lib/quant_expert_no_biases), lib/quant_expert_fragments,
// lib/quant_rows, lib/quant_blocks_in_columns with what that needs

const ROWS: u32 = 1u;

// A row of A, and the columns from one on of its product with the matrix that begins with a row of B.
struct Place {
  row: u32,
  matrix: u32,
  column: u32,
}

fn shares() -> u32 {
  return params.shares;
}

fn rows_of_a(place: Place, line: u32) -> vec2<u32> {
  return vec2<u32>(place.row);
}

fn rows_of_b(place: Place, line: u32) -> vec2<u32> {
  return lines_of_matrix(place.matrix, place.column, line);
}

// What an invocation has of the products of its experts, multiplied by their weights if they are summed.
fn sums_of_experts(row: u32, column: u32, index: u32) -> ProductSums {
  var sums: ProductSums;
  for (var term = index / SUBGROUP / shares(); term < params.experts_per_sum; term += SUBGROUPS / shares()) {
    let pair = row * params.experts_per_sum + term;
    let expert = expert_of(pair);
    if expert < params.experts {
      let place = Place(pair / params.sharing, expert * (params.n << GATED), column);
      sums += weight_of(pair) * multiply(place, index, HeldRows());
    }
  }
  return sums;
}

fn make_tile(tile: u32, index: u32) {
  let row = tile / params.tiles_n;
  if !is_written(row) {
    return;
  }
  let first_column = tile % params.tiles_n * RESULTS;
  let column = first_column + index;
  let writes = index < RESULTS && column < params.n;
  // On its way while the products are made.
  var added = 0.0;
  var biases = 0.0;
  if writes {
    added = added_at(row, column);
    biases = biases_of(row, column);
  }
  put_sums(index, sums_of_experts(row, first_column, index));
  workgroupBarrier();
  if writes {
    var x = sum_of_subgroups(index) + bias_of(row, column) + biases;
    if GATED == 1u {
      x = glu(GATE, x, sum_of_subgroups(index + RESULTS) + bias_of(row, params.n + column));
    }
    store_sum(x, added, row, column);
  }
}
