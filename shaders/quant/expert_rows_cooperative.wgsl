// Products of rows of f16 of A with the matrices of a quantised stack that indices choose for them, multiplied by the device's
// tensor cores, which add in f32: rows with one expert are multiplied together, after quant/expert_order.
//
// A workgroup makes a tile of ROWS rows of C, which needn't be adjacent, and COLUMNS columns of the product, half of which are
// gates with GATED. Its SUBGROUPS subgroups share k.
//
// k is whole blocks, or whole units with HALF_BLOCKS. Beyond the tile's last row and the last column, another one's products are
// made, but not written.
//
// needs: TA = f16, TC, SUBGROUPS, ROWS, HALF_BLOCKS, RAGGED, GATED, GATE, lib/gate, lib/quant_experts, lib/quant_rows,
// lib/quant_rows_in_columns with what that needs, lib/quant_expert_tiles, lib/workgroup_tiles

const SUBGROUP: u32 = 32u;
const THREADS: u32 = SUBGROUPS * SUBGROUP;
const COLUMNS: u32 = 16u;
// Columns of C.
const RESULTS: u32 = COLUMNS >> GATED;
const PERSISTENT: u32 = 0u;

// The sums of each subgroup, row by row of C.
var<workgroup> sh: array<f32, SUBGROUPS * ROWS * COLUMNS>;

// A tile, and the first of its columns.
struct Place {
  tile: ExpertTile,
  column: u32,
}

// All subgroups share k.
fn shares() -> u32 {
  return SUBGROUPS;
}

fn rows_of_a(place: Place, line: u32) -> vec2<u32> {
  return vec2<u32>(row_of_a(place.tile, line), row_of_a(place.tile, line + 8u));
}

// The rows of B of the invocations of a line of fragments: they lie eight apart, or are a gate's and the one that it opens.
fn rows_of_b(place: Place, line: u32) -> vec2<u32> {
  let rows = matrix_of(place.tile) + min(place.column + vec2<u32>(line, line + 8u), vec2<u32>(params.n - 1u));
  if GATED == 1u {
    return vec2<u32>(rows.x, rows.x + params.n);
  }
  return rows;
}

fn sum_of_subgroups(at: u32) -> f32 {
  var sum = 0.0;
  for (var s = 0u; s < SUBGROUPS; s++) {
    sum += sh[s * ROWS * COLUMNS + at];
  }
  return sum;
}

fn make_tile(flat: u32, index: u32) {
  let tile = expert_tile(flat / params.tiles_n);
  if tile.rows == 0u {
    return;
  }
  let place = Place(tile, flat % params.tiles_n * RESULTS);
  var sums: ProductSums;
  if !tile.is_none {
    sums = multiply(place, index, HeldRows());
  }
  put_sums(index, sums);
  workgroupBarrier();
  for (var i = index; i < tile.rows * RESULTS; i += THREADS) {
    let column = place.column + i % RESULTS;
    if column < params.n {
      let at = i / RESULTS * COLUMNS + i % RESULTS;
      var x = sum_of_subgroups(at) + bias_of(tile, column);
      if GATED == 1u {
        x = glu(GATE, x, sum_of_subgroups(at + RESULTS) + bias_of(tile, params.n + column));
      }
      put(x, pair_of(tile, i / RESULTS), column);
    }
  }
}
