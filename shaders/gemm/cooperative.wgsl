// C = activation(alpha · op(A) · op(B) + beta · C + bias) for each matrix of a batch, tile by tile, with A
// and B of f16 multiplied by the device's tensor cores, which add in f32.
//
// A workgroup makes a TILE_M × TILE_N tile of C in steps of TILE_K, divided into SUBGROUPS_M × SUBGROUPS_N
// parts. A subgroup makes one part of it, or its share of one part, as fragments of 16 × 16. The operands
// pass through workgroup memory, just as the matrices are stored: whether op is a transposition only decides
// whether fragments are read from there by rows or by columns.
//
// The step itself, `multiply`, is written by src/ops/matmul/fragments.rs: its loops over fragments have to be
// unrolled. It calls the functions of this file and of lib/fragments. The sums become results in registers
// where the elements of a fragment can be named (lib/results_in_registers), else by way of workgroup memory
// (lib/results_staged).
//
// Starts, leading dimensions, batch strides and extents along memory of A and B are multiples of eight
// elements, unless SHIFTED: then they are any, and each group of eight is put together from the two vectors
// of memory that it lies in, which are there as a whole. What lies beyond the tile's part of a matrix is read as something of the matrix, and its products
// are not written; beyond k it is 0, which only the first step can meet: it takes what k leaves over of whole
// steps.
//
// Eight elements of A or B are one vector of bits. As vectors of f16 they would be read in two parts, and
// drivers keep them in twice the registers.
//
// needs: TC, ACTIVATION, SHIFTED, lib/matmul, lib/workgroup_tiles, one of the two for results, lib/line_exponents or
// lib/no_line_exponents, lib/shifted_vector, and what lib/fragments needs

const UNIT: u32 = select(8u, 1u, SHIFTED == 1u);

// The helper file that makes results binds C twice more, for writing vectors.
const BINDING_C = 3u + EXPONENTS;

fn tile_of(flat: u32) -> Tile {
  let place = tile_place(flat);
  let row = place.x * TILE_M;
  let column = place.y * TILE_N;
  let k = depth(place.z);
  let steps = (k + TILE_K - 1u) / TILE_K;
  return Tile(
    row,
    column,
    params.c_offset + place.z * params.c_batch,
    operand(params.a_offset + place.z * params.a_batch, params.a_ld, row, params.m, k, TRANS_A == 1u),
    operand(params.b_offset + place.z * params.b_batch, params.b_ld, column, params.n, k, TRANS_B == 0u),
    k - (steps - 1u) * TILE_K,
    steps,
  );
}

// A matrix that begins at `base`: `across` of it is the tile's place in the dimension of length `extent` that
// it does not share with the other; k runs from row to row or along the rows.
fn operand(base: u32, ld: u32, across: u32, extent: u32, k: u32, mn_major: bool) -> Operand {
  let rows = select(extent, k, mn_major);
  let columns = select(k, extent, mn_major);
  let first = base + select(across * ld, across, mn_major);
  return Operand(first / UNIT, (base + (rows - 1u) * ld + columns + 7u) / 8u - 1u, ld / UNIT);
}

// The group that is `iteration` iterations below an invocation's first.
fn fetch_a(tile: Tile, at: u32, iteration: u32) -> vec4<u32> {
  let i = at + iteration * ITERATION_ROWS_A * tile.a.ld;
  if SHIFTED == 1u {
    return shifted_vector(a[min(i / 8u, tile.a.last)], a[min(i / 8u + 1u, tile.a.last)], i);
  }
  return a[min(i, tile.a.last)];
}

fn fetch_b(tile: Tile, at: u32, iteration: u32) -> vec4<u32> {
  let i = at + iteration * ITERATION_ROWS_B * tile.b.ld;
  if SHIFTED == 1u {
    return shifted_vector(b[min(i / 8u, tile.b.last)], b[min(i / 8u + 1u, tile.b.last)], i);
  }
  return b[min(i, tile.b.last)];
}

// The first `count` elements of a group, and 0 for the others.
fn first_of(group: vec4<u32>, count: u32) -> vec4<u32> {
  let halves = select(group & vec4<u32>(0xffffu), group, vec4<u32>(1u, 3u, 5u, 7u) < vec4<u32>(count));
  return select(vec4<u32>(), halves, vec4<u32>(0u, 2u, 4u, 6u) < vec4<u32>(count));
}

// A group of the first step, with 0 for what lies beyond it.
fn keep_a(tile: Tile, index: u32, iteration: u32, group: vec4<u32>) -> vec4<u32> {
  let place = lane_place(index, VEC8S_A);
  let k = select(place.y * 8u, place.x + iteration * ITERATION_ROWS_A, TRANS_A == 1u);
  if SHIFTED == 1u && !(TRANS_A == 1u) {
    return first_of(group, max(tile.head, k) - k);
  }
  return select(vec4<u32>(), group, k < tile.head);
}

fn keep_b(tile: Tile, index: u32, iteration: u32, group: vec4<u32>) -> vec4<u32> {
  let place = lane_place(index, VEC8S_B);
  let k = select(place.y * 8u, place.x + iteration * ITERATION_ROWS_B, TRANS_B == 0u);
  if SHIFTED == 1u && !(TRANS_B == 0u) {
    return first_of(group, max(tile.head, k) - k);
  }
  return select(vec4<u32>(), group, k < tile.head);
}

fn make_tile(flat: u32, index: u32) {
  multiply(tile_of(flat), index);
}
