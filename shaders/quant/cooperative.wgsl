// C = activation(alpha · A · Bᵀ + beta · C + bias) for many rows of f16 of A and a quantised B, tile by tile,
// multiplied by the device's tensor cores, which add in f32.
//
// It is gemm/cooperative with another right operand: B's rows run along k, and its weights are made of their
// quants and scales, rounded to f16, on their way from registers into workgroup memory. The step itself,
// `multiply`, is written by src/ops/matmul/fragments.rs and calls the functions of this file and of
// lib/fragments.
//
// A step takes a block of 32 weights of each row of B. k is whole blocks, so that all steps are whole. A's start
// and leading dimension are multiples of eight elements. What lies beyond the tile's part of a matrix is read as
// something of the matrix, and its products are not written.
//
// needs: TA = f16, TC, ACTIVATION, lib/matmul, lib/workgroup_tiles, one of the two for results, a format's scales and
// its lib/quant_fragments_*, lib/quant_weights, and what lib/fragments needs

// Groups of eight are addressed as a whole.
const UNIT: u32 = 8u;

// The helper file that makes results binds C twice more, for writing vectors.
const BINDING_C = 5u;

const_assert TILE_K == 32u && TRANS_A == 0u && TRANS_B == 1u;

// A place in B's part of the tile is a number: its row times this, and its group of eight weights in the row.
const ROW = 1u << 20u;

fn tile_of(flat: u32) -> Tile {
  let place = tile_place(flat);
  let row = place.x * TILE_M;
  let first = params.a_offset + row * params.a_ld;
  let end = params.a_offset + (params.m - 1u) * params.a_ld + params.k;
  return Tile(
    row,
    place.y * TILE_N,
    params.c_offset,
    Operand(first / UNIT, (end + 7u) / 8u - 1u, params.a_ld / UNIT),
    Operand(0u, params.k / 8u - 1u, ROW),
    TILE_K,
    params.k / TILE_K,
  );
}

// The group that is `iteration` iterations below an invocation's first.
fn fetch_a(tile: Tile, at: u32, iteration: u32) -> vec4<u32> {
  return a[min(at + iteration * ITERATION_ROWS_A * tile.a.ld, tile.a.last)];
}

// Eight weights of a row of B as they are stored: the quants of a block's word, and the scales of its unit.
struct Packed {
  quants: Quants,
  scales: Scales,
  // Four times the block in its unit, and the word.
  word: u32,
}

fn fetch_b(tile: Tile, at: u32, iteration: u32) -> Packed {
  let row = min(tile.column + at / ROW + iteration * ITERATION_ROWS_B, params.n - 1u);
  let group = min(at % ROW, tile.b.last);
  let unit = group / 16u;
  let word = group % 16u;
  return Packed(load_block(row, unit, word % 4u, word / 4u), load_scales(row, unit), word);
}

fn stage_packed_b(at: u32, iteration: u32, group: Packed) {
  let block = group.word / 4u;
  let s = scale_of(group.scales, block, group.word % 4u);
  sh_b[at + iteration * ITERATION_ROWS_B * STRIDE_B] = weights(first_quants(group.quants, block, s.zero), s);
  sh_b[at + iteration * ITERATION_ROWS_B * STRIDE_B + 1u] = weights(last_quants(group.quants, block, s.zero), s);
}

fn make_tile(flat: u32, index: u32) {
  multiply(tile_of(flat), index);
}
