// C = activation(alpha · op(A) · op(B) + beta · C + bias) for each matrix of a batch, of f16 operands that go
// from memory straight into fragments of the device's tensor cores, which add in f32. Nothing passes through
// workgroup memory before the last sums, so that much of both operands can be on its way: this is for
// products that wait for memory.
//
// A workgroup makes TILE_M × TILE_N of C. Its subgroups divide the tile into SUBGROUPS_M × SUBGROUPS_N parts,
// and SUBGROUPS_K of them share each part along k and add their sums at the end.
//
// An invocation reads at most 16 bytes at a time and takes the numbers for those elements of fragments that
// it has. Where an operand's rows run along k, it reads eight of k of each of its rows or columns of the part.
// Else it reads eight rows of k, of each as many neighbouring columns as it has. Which k an element stands for
// is the same for both operands, and which row or column is known when results are written.
//
// The step itself, `multiply`, is written by src/ops/matmul/unstaged_step.rs, as every fragment needs a name
// of its own. It calls the functions of this file.
//
// Starts, leading dimensions, batch strides and extents along memory of A and B are multiples of eight
// elements.
//
// With TRANS_C, the product was transposed as a whole: C is written by columns.
//
// needs: T = f16, TC, TILE_M, TILE_N, SUBGROUPS_M, SUBGROUPS_N, SUBGROUPS_K, PREFETCH, TRANS_A, TRANS_B, TRANS_C,
// ACTIVATION, lib/matmul, lib/fragment_elements, lib/workgroup_tiles, and of the step: VecA, VecB, multiply

const SUBGROUP: u32 = 32u;
const FRAGMENT: u32 = 16u;
const PARTS: u32 = SUBGROUPS_M * SUBGROUPS_N;
const SUBGROUPS: u32 = PARTS * SUBGROUPS_K;
const THREADS: u32 = SUBGROUPS * SUBGROUP;
const PART_M: u32 = TILE_M / SUBGROUPS_M;
const PART_N: u32 = TILE_N / SUBGROUPS_N;
const FRAGMENTS_M: u32 = PART_M / FRAGMENT;
const FRAGMENTS_N: u32 = PART_N / FRAGMENT;

// Elements of k that an invocation reads of a row, and that a subgroup and the workgroup take at once.
const WIDTH: u32 = 8u;
const DEPTH: u32 = 4u * WIDTH;
const STEP: u32 = PREFETCH * DEPTH;
const K_BLOCK: u32 = SUBGROUPS_K * STEP;

// Rows or columns of a part that an invocation has elements of.
const OWN_M: u32 = PART_M / 8u;
const OWN_N: u32 = PART_N / 8u;

const_assert TILE_M % (SUBGROUPS_M * FRAGMENT) == 0u && TILE_N % (SUBGROUPS_N * FRAGMENT) == 0u;

// What a subgroup has of eight rows of sums, as each invocation has it.
var<workgroup> sh: array<vec4<f32>, SUBGROUPS * FRAGMENTS_N * SUBGROUP>;

struct Tile {
  place: vec3<u32>,
  // The subgroup's part of the tile, as (row, column) of C, and which of those that share it along k it is.
  row: u32,
  column: u32,
  share: u32,
  lane: u32,
  k: u32,
  // Where the matrices of the batch begin.
  a: u32,
  b: u32,
}

fn tile_of(flat: u32, index: u32) -> Tile {
  let place = tile_place(flat);
  let subgroup = index / SUBGROUP;
  let part = subgroup % PARTS;
  return Tile(
    place,
    place.x * TILE_M + part / SUBGROUPS_N * PART_M,
    place.y * TILE_N + part % SUBGROUPS_N * PART_N,
    subgroup / PARTS,
    index % SUBGROUP,
    depth(place.z),
    params.a_offset + place.z * params.a_batch,
    params.b_offset + place.z * params.b_batch,
  );
}

// Where an invocation's row `i` of A begins, in vectors; beyond the last row, another one's products are
// made, but not written. If k runs from row to row, where its columns begin.
fn start_a(tile: Tile, i: u32) -> u32 {
  if TRANS_A == 1u {
    return tile.a / OWN_M + min(tile.row / OWN_M + tile.lane / 4u, params.m / OWN_M - 1u);
  }
  return tile.a / WIDTH + min(tile.row + tile.lane / 4u + i * 8u, params.m - 1u) * (params.a_ld / WIDTH);
}

fn start_b(tile: Tile, j: u32) -> u32 {
  if TRANS_B == 0u {
    return tile.b / OWN_N + min(tile.column / OWN_N + tile.lane / 4u, params.n / OWN_N - 1u);
  }
  return tile.b / WIDTH + min(tile.column + tile.lane / 4u + j * 8u, params.n - 1u) * (params.b_ld / WIDTH);
}

// The vector at `k`, from the start of its row or columns on.
fn fetch_a(start: u32, k: u32) -> VecA {
  return a[start + select(k / WIDTH, k * (params.a_ld / OWN_M), TRANS_A == 1u)];
}

fn fetch_b(start: u32, k: u32) -> VecB {
  return b[start + select(k / WIDTH, k * (params.b_ld / OWN_N), TRANS_B == 0u)];
}

// The vector at `k` in the first k-block, which is filled up with zeros from its beginning.
fn first_a(start: u32, k: u32, pad: u32) -> VecA {
  return select(VecA(), fetch_a(start, max(k, pad) - pad), k >= pad);
}

fn first_b(start: u32, k: u32, pad: u32) -> VecB {
  return select(VecB(), fetch_b(start, max(k, pad) - pad), k >= pad);
}

// The k-block after the first with which a workgroup goes on. Those of one row of tiles go on at different
// places, or all would ask for the same of A at a time.
fn first_place(flat: u32, k_blocks: u32) -> u32 {
  return select(0u, flat % max(k_blocks - 1u, 1u), params.tiles_m == 1u);
}

// Elements of two columns, of which four rows of k have a pair each.
fn halves_across(pairs: vec4<u32>) -> Halves {
  let first = halves(pairs.xy);
  let last = halves(pairs.zw);
  return Halves(vec4<f16>(first.xz, last.xz), vec4<f16>(first.yw, last.yw));
}

// The column in a part of the element `e` of those that an invocation has of the fragment `j` across.
fn column_of(lane: u32, j: u32, e: u32) -> u32 {
  let column = lane % 4u * 2u + e % 2u;
  return select(column * OWN_N + j * 2u + e / 2u, j * FRAGMENT + column + e / 2u * 8u, TRANS_B == 1u);
}

// Adds up and writes what the workgroup has of the `i`-th eight rows of each part.
fn write_out(tile: Tile, index: u32, i: u32) {
  const COUNT = PARTS * FRAGMENTS_N * SUBGROUP;
  for (var number = index; number < COUNT; number += THREADS) {
    let part = number / (FRAGMENTS_N * SUBGROUP);
    let j = number / SUBGROUP % FRAGMENTS_N;
    let lane = number % SUBGROUP;
    var sums = vec4<f32>();
    for (var s = 0u; s < SUBGROUPS_K; s++) {
      sums += sh[((s * PARTS + part) * FRAGMENTS_N + j) * SUBGROUP + lane];
    }
    let inner = select(i * 8u + lane / 4u, lane / 4u * OWN_M + i, TRANS_A == 1u);
    let row = tile.place.x * TILE_M + part / SUBGROUPS_N * PART_M + inner;
    for (var e = 0u; e < 4u; e++) {
      let column = tile.place.y * TILE_N + part % SUBGROUPS_N * PART_N + column_of(lane, j, e);
      if row < params.m && column < params.n {
        let at = params.c_offset
          + tile.place.z * params.c_batch
          + select(row * params.c_ld + column, column * params.c_ld + row, TRANS_C == 1u);
        c[at] = finish(sums[e], row, column, at);
      }
    }
  }
}

fn make_tile(flat: u32, index: u32) {
  multiply(tile_of(flat, index), index, flat);
}
