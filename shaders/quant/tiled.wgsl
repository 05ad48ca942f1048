// C = residual + activation(alpha · A · Bᵀ + bias) for many rows of A and a quantised B, which is dequantised
// on its way into workgroup memory.
//
// A workgroup makes a tile of TILE × TILE results. Beyond the last row and column, another one's products are made, but
// not written.
//
// needs: TA, TC, ACTIVATION, lib/quant_product, lib/quant_tile, a format, a reader of A, lib/workgroup_tiles

const THREADS: u32 = 256u;

fn make_tile(tile: u32, index: u32) {
  let first_row = tile / params.tiles_n * TILE;
  let first_column = tile % params.tiles_n * TILE;
  let line = index / 4u;
  let row = min(first_row + line, params.m - 1u);
  let column = min(first_column + line, params.n - 1u);

  var sums: array<vec4<f32>, 4>;
  for (var step = 0u; step < 4u * params.units; step++) {
    add_products(step, row, column, index, &sums);
  }

  let origin = vec2<u32>(first_row, first_column) + origin_of(index);
  for (var i = 0u; i < 4u; i++) {
    for (var l = 0u; l < 4u; l++) {
      if origin.x + i < params.m && origin.y + l < params.n {
        finish(sums[i][l], origin.x + i, origin.y + l);
      }
    }
  }
}
