// What the kernels on cooperative matrices share: how a tile is divided among subgroups, and the way of the
// operands through workgroup memory, just as they are stored.
//
// needs: TILE_M, TILE_N, TILE_K, SUBGROUPS_M, SUBGROUPS_N, TRANS_A, TRANS_B, UNIT (elements from one address
// of an operand to the next: 8 if groups of eight lie at multiples of eight, else 1), lib/halves

// Invocations of a subgroup; the kernel runs only on devices where it is so.
const SUBGROUP: u32 = 32u;
const FRAGMENT: u32 = 16u;
const PARTS: u32 = SUBGROUPS_M * SUBGROUPS_N;
// Subgroups that share a part: each multiplies a fragment's depth of every step. A tile of one part is for
// few rows or columns, for which the loads that are on their way decide.
const SUBGROUPS_K: u32 = select(1u, TILE_K / FRAGMENT, PARTS == 1u);
const SHARERS: u32 = SUBGROUPS_K * SUBGROUP;
const THREADS: u32 = PARTS * SHARERS;
const PART_M: u32 = TILE_M / SUBGROUPS_M;
const PART_N: u32 = TILE_N / SUBGROUPS_N;
const PART_K: u32 = TILE_K / SUBGROUPS_K;

// Stored rows of a step's operands, and their length in groups of eight elements: what an invocation moves at
// once.
const ROWS_A: u32 = TILE_M * (1u - TRANS_A) + TILE_K * TRANS_A;
const ROWS_B: u32 = TILE_K * (1u - TRANS_B) + TILE_N * TRANS_B;
const VEC8S_A: u32 = TILE_M * TILE_K / ROWS_A / 8u;
const VEC8S_B: u32 = TILE_N * TILE_K / ROWS_B / 8u;
// Rows that the workgroup moves in one iteration.
const ITERATION_ROWS_A: u32 = THREADS / VEC8S_A;
const ITERATION_ROWS_B: u32 = THREADS / VEC8S_B;

// Rows of workgroup memory, in vectors of four: 16 bytes longer than their content, against bank conflicts.
const STRIDE_A: u32 = 2u * VEC8S_A + 2u;
const STRIDE_B: u32 = 2u * VEC8S_B + 2u;
// The stride of a fragment of sums, in elements. Its rows are not padded: with a little more workgroup memory,
// only one workgroup would fit on a compute unit of the devices that this is for.
const STRIDE_C: u32 = FRAGMENT;

const_assert TILE_M % SUBGROUPS_M == 0u && TILE_N % SUBGROUPS_N == 0u;
const_assert PART_M % FRAGMENT == 0u && PART_N % FRAGMENT == 0u && PART_K % FRAGMENT == 0u;
const_assert THREADS % VEC8S_A == 0u;
const_assert THREADS % VEC8S_B == 0u && ROWS_B % ITERATION_ROWS_B == 0u;

var<workgroup> sh_a: array<vec4<f16>, ROWS_A * STRIDE_A>;
var<workgroup> sh_b: array<vec4<f16>, ROWS_B * STRIDE_B>;
// A fragment of each subgroup.
const SIZE_C: u32 = FRAGMENT * STRIDE_C;
var<workgroup> sh_c: array<f32, THREADS / SUBGROUP * SIZE_C>;

// A matrix: where the tile's part begins, the last group of eight of the matrix, and from one stored row to
// the next. But for the last group, in units.
struct Operand {
  first: u32,
  last: u32,
  ld: u32,
}

// Where an invocation's first group lies in a step's part of an operand, as (row, group of the row).
// Neighbours take what is adjacent in memory; of rows of four groups, those are put side by side that lie in
// different banks.
fn lane_place(index: u32, vec8s: u32) -> vec2<u32> {
  if vec8s == 4u {
    let four = index / 4u % 8u;
    return vec2<u32>(index / 32u * 8u + four / 2u + four % 2u * 4u, index % 4u);
  }
  return vec2<u32>(index / vec8s, index % vec8s);
}

// The first group that an invocation reads.
fn start(operand: Operand, index: u32, vec8s: u32) -> u32 {
  let place = lane_place(index, vec8s);
  return operand.first + place.x * operand.ld + place.y * (8u / UNIT);
}

// From one place in k to another that is `k` further.
fn along_k(operand: Operand, k: u32, mn_major: bool) -> u32 {
  return select(k / UNIT, k * operand.ld, mn_major);
}

// Where an invocation puts its first group into workgroup memory.
fn slot(index: u32, vec8s: u32, stride: u32) -> u32 {
  let place = lane_place(index, vec8s);
  return place.x * stride + place.y * 2u;
}

fn stage_a(at: u32, iteration: u32, group: vec4<u32>) {
  if ROWS_A % ITERATION_ROWS_A != 0u && at + iteration * ITERATION_ROWS_A * STRIDE_A >= ROWS_A * STRIDE_A {
    return;
  }
  sh_a[at + iteration * ITERATION_ROWS_A * STRIDE_A] = halves(group.xy);
  sh_a[at + iteration * ITERATION_ROWS_A * STRIDE_A + 1u] = halves(group.zw);
}

fn stage_b(at: u32, iteration: u32, group: vec4<u32>) {
  sh_b[at + iteration * ITERATION_ROWS_B * STRIDE_B] = halves(group.xy);
  sh_b[at + iteration * ITERATION_ROWS_B * STRIDE_B + 1u] = halves(group.zw);
}

// The (row, column) in the tile of a part. The subgroups that share it follow each other.
fn part_of(part: u32) -> vec2<u32> {
  return vec2<u32>(part / SUBGROUPS_N * PART_M, part % SUBGROUPS_N * PART_N);
}

// Where a subgroup's operands and sums begin in workgroup memory.
fn start_a(subgroup: u32) -> u32 {
  let row = part_of(subgroup / SUBGROUPS_K).x;
  let k = subgroup % SUBGROUPS_K * PART_K;
  return select(row * STRIDE_A + k / 4u, k * STRIDE_A + row / 4u, TRANS_A == 1u);
}

fn start_b(subgroup: u32) -> u32 {
  let column = part_of(subgroup / SUBGROUPS_K).y;
  let k = subgroup % SUBGROUPS_K * PART_K;
  return select(k * STRIDE_B + column / 4u, column * STRIDE_B + k / 4u, TRANS_B == 1u);
}

fn start_c(subgroup: u32) -> u32 {
  return subgroup * SIZE_C;
}

// A sum that subgroups share: what the first of them has at `i`, and the others after it.
fn shared_sum(i: u32) -> f32 {
  var sum = sh_c[i];
  for (var s = 1u; s < SUBGROUPS_K; s++) {
    sum += sh_c[i + s * SIZE_C];
  }
  return sum;
}
