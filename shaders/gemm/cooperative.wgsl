// C = activation(alpha · op(A) · op(B) + beta · C + bias) for each matrix of a batch, tile by tile, with A and B of f16
// multiplied by the device's matrix units, which add in f32.
//
// A workgroup makes a TILE_M × TILE_N tile of C in steps of TILE_K; each of its SUBGROUPS_M × SUBGROUPS_N subgroups
// makes one part of it as fragments of 16 × 16. The operands pass through workgroup memory, just as the matrices are
// stored: whether op is a transposition only decides whether fragments are read from there by rows or by columns.
//
// The step itself, `multiply`, is written by src/ops/matmul/fragments.rs: its loops over fragments have to be unrolled.
// It calls the functions of this file. The sums leave it through workgroup memory too, because the elements of a
// fragment can't be named.
//
// Starts, leading dimensions, batch strides and extents along memory of A and B are multiples of eight elements. What
// lies beyond the tile's part of a matrix is read as something of the matrix, and its products are not written; beyond
// k it is 0, which only the first step can meet: it takes what k leaves over of whole steps.
//
// needs: TC, TILE_M, TILE_N, TILE_K, SUBGROUPS_M, SUBGROUPS_N, TRANS_A, TRANS_B, ACTIVATION, lib/matmul

// Invocations of a subgroup; the kernel runs only on devices where it is so.
const SUBGROUP: u32 = 32u;
const FRAGMENT: u32 = 16u;
const THREADS: u32 = SUBGROUPS_M * SUBGROUPS_N * SUBGROUP;
const PART_M: u32 = TILE_M / SUBGROUPS_M;
const PART_N: u32 = TILE_N / SUBGROUPS_N;

// Stored rows of a step's operands, and their length in groups of eight elements: what an invocation moves at once.
const ROWS_A: u32 = TILE_M * (1u - TRANS_A) + TILE_K * TRANS_A;
const ROWS_B: u32 = TILE_K * (1u - TRANS_B) + TILE_N * TRANS_B;
const EIGHTS_A: u32 = TILE_M * TILE_K / ROWS_A / 8u;
const EIGHTS_B: u32 = TILE_N * TILE_K / ROWS_B / 8u;
// Rows that the workgroup moves in one turn.
const TURN_A: u32 = THREADS / EIGHTS_A;
const TURN_B: u32 = THREADS / EIGHTS_B;

// Rows of workgroup memory, in vectors of four: 16 bytes longer than their content, against bank conflicts.
const STRIDE_A: u32 = 2u * EIGHTS_A + 2u;
const STRIDE_B: u32 = 2u * EIGHTS_B + 2u;
// The same for a fragment of sums, in elements. These are not padded: with a little more workgroup memory, only one
// workgroup would fit on a multiprocessor of the devices that this is for.
const STRIDE_C: u32 = FRAGMENT;

const_assert TILE_M % SUBGROUPS_M == 0u && TILE_N % SUBGROUPS_N == 0u;
const_assert PART_M % FRAGMENT == 0u && PART_N % FRAGMENT == 0u && TILE_K % FRAGMENT == 0u;
const_assert THREADS % EIGHTS_A == 0u && ROWS_A % TURN_A == 0u;
const_assert THREADS % EIGHTS_B == 0u && ROWS_B % TURN_B == 0u;

// Eight elements of A or B are one vector of bits. As vectors of f16 they would be read in two parts, and drivers keep
// them in twice the registers.
@group(0) @binding(0) var<storage, read> a: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> bias: array<TC>;
@group(0) @binding(3) var<storage, read_write> c: array<TC>;
// C once more, for writing vectors.
@group(0) @binding(4) var<storage, read_write> c4: array<vec4<TC>>;

var<workgroup> sh_a: array<vec4<f16>, ROWS_A * STRIDE_A>;
var<workgroup> sh_b: array<vec4<f16>, ROWS_B * STRIDE_B>;
// A fragment of each subgroup.
var<workgroup> sh_c: array<f32, SUBGROUPS_M * SUBGROUPS_N * FRAGMENT * STRIDE_C>;

// A matrix as groups of eight: the first of the tile's part, the last of the matrix, and the length of a stored row.
struct Operand {
  first: u32,
  last: u32,
  ld: u32,
}

struct Tile {
  row: u32,
  column: u32,
  c: u32,
  a: Operand,
  b: Operand,
  // How much of k the first step takes, and how many steps there are.
  head: u32,
  steps: u32,
}

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

// A matrix that begins at `base`: `across` of it is the tile's place in the dimension of length `extent` that it does
// not share with the other; k runs from row to row or along the rows.
fn operand(base: u32, ld: u32, across: u32, extent: u32, k: u32, k_down: bool) -> Operand {
  let rows = select(extent, k, k_down);
  let columns = select(k, extent, k_down);
  let first = base + select(across * ld, across, k_down);
  return Operand(first / 8u, (base + (rows - 1u) * ld + columns + 7u) / 8u - 1u, ld / 8u);
}

// Where an invocation's first group lies in a step's part of an operand, as (row, group of the row). Neighbours take
// what is adjacent in memory; of rows of four groups, those are put side by side that lie in different banks.
fn lane_place(index: u32, eights: u32) -> vec2<u32> {
  if eights == 4u {
    let four = index / 4u % 8u;
    return vec2<u32>(index / 32u * 8u + four / 2u + four % 2u * 4u, index % 4u);
  }
  return vec2<u32>(index / eights, index % eights);
}

// The first group that an invocation reads.
fn start(operand: Operand, index: u32, eights: u32) -> u32 {
  let place = lane_place(index, eights);
  return operand.first + place.x * operand.ld + place.y;
}

// From one place in k to another that is `k` further.
fn along_k(operand: Operand, k: u32, k_down: bool) -> u32 {
  return select(k / 8u, k * operand.ld, k_down);
}

// The group that is `turn` turns below an invocation's first.
fn fetch_a(tile: Tile, at: u32, turn: u32) -> vec4<u32> {
  return a[min(at + turn * TURN_A * tile.a.ld, tile.a.last)];
}

fn fetch_b(tile: Tile, at: u32, turn: u32) -> vec4<u32> {
  return b[min(at + turn * TURN_B * tile.b.ld, tile.b.last)];
}

// A group of the first step, with 0 for what lies beyond it.
fn keep_a(tile: Tile, index: u32, turn: u32, group: vec4<u32>) -> vec4<u32> {
  let place = lane_place(index, EIGHTS_A);
  let k = select(place.y * 8u, place.x + turn * TURN_A, TRANS_A == 1u);
  return select(vec4<u32>(), group, k < tile.head);
}

fn keep_b(tile: Tile, index: u32, turn: u32, group: vec4<u32>) -> vec4<u32> {
  let place = lane_place(index, EIGHTS_B);
  let k = select(place.y * 8u, place.x + turn * TURN_B, TRANS_B == 0u);
  return select(vec4<u32>(), group, k < tile.head);
}

// Where an invocation puts its first group into workgroup memory.
fn slot(index: u32, eights: u32, stride: u32) -> u32 {
  let place = lane_place(index, eights);
  return place.x * stride + place.y * 2u;
}

fn stage_a(at: u32, turn: u32, group: vec4<u32>) {
  sh_a[at + turn * TURN_A * STRIDE_A] = halves(group.xy);
  sh_a[at + turn * TURN_A * STRIDE_A + 1u] = halves(group.zw);
}

fn stage_b(at: u32, turn: u32, group: vec4<u32>) {
  sh_b[at + turn * TURN_B * STRIDE_B] = halves(group.xy);
  sh_b[at + turn * TURN_B * STRIDE_B + 1u] = halves(group.zw);
}

// The same bits as elements. The way through f32 changes no number, and compilers leave it out.
fn halves(bits: vec2<u32>) -> vec4<f16> {
  return vec4<f16>(vec4<f32>(unpack2x16float(bits.x), unpack2x16float(bits.y)));
}

// A subgroup's (row, column) in the tile.
fn part_of(subgroup: u32) -> vec2<u32> {
  return vec2<u32>(subgroup / SUBGROUPS_N * PART_M, subgroup % SUBGROUPS_N * PART_N);
}

// Where a subgroup's operands and sums begin in workgroup memory.
fn start_a(subgroup: u32) -> u32 {
  let row = part_of(subgroup).x;
  return select(row * STRIDE_A, row / 4u, TRANS_A == 1u);
}

fn start_b(subgroup: u32) -> u32 {
  let column = part_of(subgroup).y;
  return select(column / 4u, column * STRIDE_B, TRANS_B == 1u);
}

fn start_c(subgroup: u32) -> u32 {
  return subgroup * FRAGMENT * STRIDE_C;
}

// Writes a fragment of each subgroup, which begins at `inner` of the subgroup's part, from workgroup memory to C.
fn write_out(tile: Tile, index: u32, inner: vec2<u32>) {
  let subgroup = index / SUBGROUP;
  let lane = index % SUBGROUP;
  let corner = vec2<u32>(tile.row, tile.column) + part_of(subgroup) + inner;
  let sums = start_c(subgroup);
  if (tile.c | params.c_ld | params.n) % 4u == 0u {
    for (var i = lane; i < FRAGMENT * FRAGMENT / 4u; i += SUBGROUP) {
      let cell = vec2<u32>(i / (FRAGMENT / 4u), i % (FRAGMENT / 4u) * 4u);
      let place = corner + cell;
      if place.x < params.m && place.y < params.n {
        let at = tile.c + place.x * params.c_ld + place.y;
        let first = sums + cell.x * STRIDE_C + cell.y;
        let four = vec4<f32>(sh_c[first], sh_c[first + 1u], sh_c[first + 2u], sh_c[first + 3u]);
        c4[at / 4u] = vec4<TC>(finish_four(four, place.x, place.y, at, 4u));
      }
    }
  } else {
    for (var i = lane; i < FRAGMENT * FRAGMENT; i += SUBGROUP) {
      let cell = vec2<u32>(i / FRAGMENT, i % FRAGMENT);
      let place = corner + cell;
      if place.x < params.m && place.y < params.n {
        let at = tile.c + place.x * params.c_ld + place.y;
        c[at] = finish(sh_c[sums + cell.x * STRIDE_C + cell.y], place.x, place.y, at);
      }
    }
  }
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let flat = flat_group(group, groups);
  if flat >= params.tiles {
    return;
  }
  multiply(tile_of(flat), index);
}
