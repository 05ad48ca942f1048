// Products of many rows of A with the matrices of a quantised stack that indices choose for them: rows with one expert
// are multiplied together, after quant/expert_order, and weights are dequantised on their way into workgroup memory.
//
// A workgroup makes a tile of TILE rows of C, which needn't be adjacent, and TILE columns of the product. With GATED, an
// invocation has two columns of gates and the two that they open.
//
// Beyond the tile's last row and the last column, another one's products are made, but not written.
//
// needs: TA, TC, GATED, GATE, lib/gate, lib/quant_experts, lib/quant_tile, a format, a reader of A, lib/workgroup_tiles

const THREADS: u32 = 256u;
const RESULTS: u32 = TILE >> GATED;

// What is added to the product with a row of an expert's matrix, if there is such an expert.
fn bias_of(expert: u32, line: u32) -> f32 {
  if (params.terms & HAS_BIAS) == 0u || expert >= params.experts {
    return 0.0;
  }
  return bias[params.bias + expert * (params.n << GATED) + line];
}

fn make_tile(tile: u32, index: u32) {
  let entry = params.entries + tile / params.tiles_n * 4u;
  let expert = plan[entry] - params.first;
  let is_none = params.first == 0u && plan[entry] == params.experts_of_all;
  let rows = plan[entry + 2u];
  if rows == 0u || !(is_none || expert < params.experts) {
    return;
  }
  let first_pair = params.order + plan[entry + 1u];
  let first_column = tile % params.tiles_n * RESULTS;
  let line = index / 4u;
  let row = plan[first_pair + min(line, rows - 1u)] / params.sharing;
  var column = first_column + line;
  if GATED == 1u {
    column = first_column + line / 4u * 2u + line % 2u;
  }
  column = min(column, params.n - 1u);
  if GATED == 1u && (line & 2u) != 0u {
    column += params.n;
  }
  let row_b = expert * (params.n << GATED) + column;

  var sums: array<vec4<f32>, 4>;
  let steps = select(4u * params.units, 0u, is_none);
  for (var step = 0u; step < steps; step++) {
    add_products(step, row, row_b, index, &sums);
  }

  let corner = corner_of(index);
  let y = corner.x;
  let x = corner.y;
  for (var i = 0u; i < 4u; i++) {
    if y + i < rows {
      let pair = plan[first_pair + y + i];
      if GATED == 1u {
        for (var l = 0u; l < 2u; l++) {
          let at = first_column + x / 2u + l;
          if at < params.n {
            let opened = sums[i][l + 2u] + bias_of(expert, params.n + at);
            put(glu(GATE, sums[i][l] + bias_of(expert, at), opened), pair, at);
          }
        }
      } else {
        for (var l = 0u; l < 4u; l++) {
          let at = first_column + x + l;
          if at < params.n {
            put(sums[i][l] + bias_of(expert, at), pair, at);
          }
        }
      }
    }
  }
}
