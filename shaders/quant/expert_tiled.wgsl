// Products of many rows of A with the matrices of a quantised stack that indices choose for them: rows with one expert
// are multiplied together, after quant/expert_order, and weights are dequantised on their way into workgroup memory.
//
// A workgroup makes a tile of TILE rows of C, which needn't be adjacent, and TILE columns of the product. With GATED, an
// invocation has two columns of gates and the two that they open.
//
// Beyond the tile's last row and the last column, another one's products are made, but not written.
//
// needs: TA, TC, GATED, GATE, lib/gate, lib/quant_expert_tiles, lib/quant_tile, a format, a reader of A, lib/workgroup_tiles

const THREADS: u32 = 256u;
const RESULTS: u32 = TILE >> GATED;

fn make_tile(flat: u32, index: u32) {
  let tile = expert_tile(flat / params.tiles_n);
  if tile.rows == 0u {
    return;
  }
  let first_column = flat % params.tiles_n * RESULTS;
  let line = index / 4u;
  let row = row_of_a(tile, line);
  var column = first_column + line;
  if GATED == 1u {
    column = first_column + line / 4u * 2u + line % 2u;
  }
  column = min(column, params.n - 1u);
  if GATED == 1u && (line & 2u) != 0u {
    column += params.n;
  }
  let row_b = matrix_of(tile) + column;

  var sums: array<vec4<f32>, 4>;
  let steps = select(4u * params.units, 0u, tile.is_none);
  for (var step = 0u; step < steps; step++) {
    add_products(step, row, row_b, index, &sums);
  }

  let origin = origin_of(index);
  let y = origin.x;
  let x = origin.y;
  for (var i = 0u; i < 4u; i++) {
    if y + i < tile.rows {
      let pair = pair_of(tile, y + i);
      if GATED == 1u {
        for (var l = 0u; l < 2u; l++) {
          let at = first_column + x / 2u + l;
          if at < params.n {
            let opened = sums[i][l + 2u] + bias_of(tile, params.n + at);
            put(glu(GATE, sums[i][l] + bias_of(tile, at), opened), pair, at);
          }
        }
      } else {
        for (var l = 0u; l < 4u; l++) {
          let at = first_column + x + l;
          if at < params.n {
            put(sums[i][l] + bias_of(tile, at), pair, at);
          }
        }
      }
    }
  }
}
