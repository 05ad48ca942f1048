// C = activation(alpha · op(A) · op(B) + beta · C + bias) for each matrix of a batch, tile by tile.
//
// With VEC, the starts, leading dimensions, batch strides and extents along memory of A and B are multiples
// of 4, and both are read as vectors; without, element by element.
//
// needs: TA, TB, TC, VEC, TRANS_A, TRANS_B, ACTIVATION, lib/matmul, lib/operand_blocks, lib/workgroup_tiles and what
// lib/tile_product needs

const A_ALONG_K: u32 = 1u - TRANS_A;
const B_ALONG_K: u32 = TRANS_B;

// Without vectors, the columns of a four are apart, so that neighbours read and write neighbouring elements.
const COLUMN_STEP: u32 = select(STRIDE_B, 1u, VEC == 1u);

fn write_out(tile: Tile, row: u32, column: u32, sums: vec4<f32>) {
  write_apart(tile.batch, row, column, sums, COLUMN_STEP);
}

fn make_tile(flat: u32, index: u32) {
  let place = tile_place(flat);
  let tile = Tile(place.x * TILE_M, place.y * TILE_N, place.z);
  tile_product(tile, index, 0u, depth(tile.batch));
}
