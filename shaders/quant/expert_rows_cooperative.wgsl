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
// lib/quant_rows_in_columns with what that needs, lib/quant_expert_tiles, lib/quant_expert_fragments, lib/workgroup_tiles

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

fn rows_of_b(place: Place, line: u32) -> vec2<u32> {
  return lines_of_matrix(matrix_of(place.tile), place.column, line);
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
