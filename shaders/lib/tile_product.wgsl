// The core of every matrix product: a TILE_M × TILE_N tile of op(A) · op(B), held in registers.
//
// The operands pass through workgroup memory in steps of TILE_K, as blocks of 4 × 4: a kernel supplies
// `block_a` and `block_b`, which fetch one block and put 0 beyond the values of k that it may have. If TILE_K
// is a multiple of three, a block of A has three values of k. While a step is multiplied, the blocks of the
// next are already on their way into registers. That loop, `tile_product`, is written by
// src/ops/shared/tile/step.rs: it has to be unrolled.
//
// Each invocation holds THREAD_M × THREAD_N results, as vectors of four columns. Its rows and columns come in
// vec4s that are interleaved with those of its neighbours, so that neighbours read neighbouring words.
//
// Steps of more than 32 values of k are sliced: each 32 values have invocations of their own for the whole
// tile, and the sums of the slices are added by way of workgroup memory at the end. So many loads are on
// their way at once, and a product of few tiles with long sums takes fewer steps.
//
// Four columns follow each other, or are COLUMN_STEP = STRIDE_B apart.
//
// needs: TILE_M, TILE_N, TILE_K, THREAD_M, THREAD_N, A_ALONG_K, B_ALONG_K, COLUMN_STEP, block_a, block_b,
// write_out

const ROWS: u32 = TILE_M / THREAD_M;
const COLUMNS: u32 = TILE_N / THREAD_N;
// Values of k of a slice, slices of a step, and invocations of a slice.
const SLICE: u32 = min(TILE_K, 32u);
const SLICES: u32 = TILE_K / SLICE;
const LANES: u32 = ROWS * COLUMNS;
const THREADS: u32 = SLICES * LANES;
const THREAD_M4: u32 = THREAD_M / 4u;
const THREAD_N4: u32 = THREAD_N / 4u;
const RESULTS: u32 = THREAD_M * THREAD_N4;

// Blocks of a step.
const BLOCK_A: u32 = select(4u, 3u, TILE_K % 3u == 0u);
const BLOCKS_A: u32 = STRIDE_A * TILE_K / BLOCK_A;
const BLOCKS_B: u32 = TILE_N * TILE_K / 16u;
const BLOCKS_K: u32 = TILE_K / 4u;

// Vectors of a row of workgroup memory: one of them for each k.
const STRIDE_A: u32 = TILE_M / 4u;
const STRIDE_B: u32 = TILE_N / 4u;

// Results of each invocation that workgroup memory has room for at once, where slices are added.
const ROUND: u32 = min(max(TILE_K * STRIDE_A / THREADS, 1u), RESULTS);

// From the first column of a four to that of the next.
const FOUR_STEP: u32 = select(1u, 4u, COLUMN_STEP == 1u);

const_assert TILE_M % THREAD_M == 0u && TILE_N % THREAD_N == 0u;
const_assert THREADS % STRIDE_A == 0u && THREADS % STRIDE_B == 0u;
const_assert THREADS % BLOCKS_K == 0u || BLOCKS_B <= THREADS;
const_assert BLOCK_A == 4u || A_ALONG_K == 0u;
const_assert COLUMN_STEP == 1u || COLUMN_STEP == STRIDE_B;
const_assert THREAD_M % 4u == 0u && THREAD_N % 4u == 0u && TILE_K % 8u == 0u && TILE_K % SLICE == 0u;
const_assert SLICES == 1u || (RESULTS % ROUND == 0u && ROUND % SLICES == 0u);

var<workgroup> sh_a: array<vec4<f32>, TILE_K * STRIDE_A>;
var<workgroup> sh_b: array<vec4<f32>, TILE_K * STRIDE_B + SPARE>;

// Steps of three leave room for a fourth workgroup on a compute unit of the devices that this is tuned for.
// Three are as fast, and grids that are made for them end with fewer idle ones.
const SPARE: u32 = select(0u, 128u, BLOCK_A == 3u);

// Where a workgroup's tile lies.
struct Tile {
  row: u32,
  column: u32,
  batch: u32,
}

// Where an invocation's results lie in its tile, in vec4s, and where its slice of a step begins.
struct Lane {
  row4: u32,
  column4: u32,
  k: u32,
}

// Each 32 invocations cover 4 × 8 vec4s of the tile rather than a line of it: fewer words are read for more
// results.
fn lane_of(index: u32) -> Lane {
  const WIDTH = min(8u, COLUMNS);
  const HEIGHT = min(4u, ROWS);
  let square = select(index, index % LANES, SLICES > 1u) / (WIDTH * HEIGHT);
  let inner = index % (WIDTH * HEIGHT);
  let across = COLUMNS / WIDTH;
  return Lane(
    (square / across) * HEIGHT + inner / WIDTH,
    (square % across) * WIDTH + inner % WIDTH,
    select(0u, index / LANES * SLICE, SLICES > 1u),
  );
}

// The tile's row or column at which the result `i` of an invocation lies.
fn result_row(lane: Lane, i: u32) -> u32 {
  return (lane.row4 + (i / 4u) * ROWS) * 4u + i % 4u;
}

fn result_column(lane: Lane, j4: u32) -> u32 {
  return (lane.column4 + j4 * COLUMNS) * FOUR_STEP;
}

// The block that an invocation fetches in iteration `iteration`, of the step at k, which has `length` values of k.
fn fetch_a(tile: Tile, index: u32, iteration: u32, k: u32, length: u32) -> mat4x4<f32> {
  if BLOCKS_A % THREADS != 0u && index + iteration * THREADS >= BLOCKS_A {
    return mat4x4<f32>();
  }
  let lane = place_a(index);
  let outer = vec2<u32>(tile.row, k) + iteration_offset_a(iteration);
  return block_a(tile, outer, lane, columns_of(lane.y + iteration_offset_a(iteration).y, length));
}

fn fetch_b(tile: Tile, index: u32, iteration: u32, k: u32, length: u32) -> mat4x4<f32> {
  if BLOCKS_B % THREADS != 0u && index + iteration * THREADS >= BLOCKS_B {
    return mat4x4<f32>();
  }
  let lane = place_b(index);
  let outer = vec2<u32>(tile.column, k) + iteration_offset_b(iteration);
  return block_b(tile, outer, lane, columns_of(lane.y + iteration_offset_b(iteration).y, length));
}

// How many columns a block at `k` of a step has: all but in a shorter step, as a compiler has to see.
fn columns_of(k: u32, length: u32) -> u32 {
  return select(min(max(length, k) - k, 4u), 4u, length == TILE_K);
}

// The place in the tile of an invocation's first block, as (row or column, k). Neighbours take what is
// adjacent in memory.
fn place_a(index: u32) -> vec2<u32> {
  if A_ALONG_K == 1u {
    return vec2<u32>(index / BLOCKS_K, index % BLOCKS_K) * 4u;
  }
  return vec2<u32>(index % STRIDE_A * 4u, index / STRIDE_A * BLOCK_A);
}

fn place_b(index: u32) -> vec2<u32> {
  if B_ALONG_K == 1u {
    return vec2<u32>(index / BLOCKS_K * FOUR_STEP, index % BLOCKS_K * 4u);
  }
  return vec2<u32>(index % STRIDE_B * FOUR_STEP, index / STRIDE_B * 4u);
}

// From there to the block of another iteration.
fn iteration_offset_a(iteration: u32) -> vec2<u32> {
  if A_ALONG_K == 1u {
    return vec2<u32>(iteration * 4u * (THREADS / BLOCKS_K), 0u);
  }
  return vec2<u32>(0u, iteration * BLOCK_A * (THREADS / STRIDE_A));
}

fn iteration_offset_b(iteration: u32) -> vec2<u32> {
  if B_ALONG_K == 1u {
    return vec2<u32>(iteration * FOUR_STEP * (THREADS / BLOCKS_K), 0u);
  }
  return vec2<u32>(0u, iteration * 4u * (THREADS / STRIDE_B));
}

// Where the vector `four` of the row for k lies. An operand that is adjacent along k is staged by neighbours
// that hold different k of the same four rows or columns, so those are put into different banks. All slices
// are laid out alike.
const APART: u32 = max(8u / BLOCKS_K, 1u);

fn cell_a(k: u32, four: u32) -> u32 {
  return k * STRIDE_A + (four ^ select(0u, k / 4u * APART % min(8u, STRIDE_A), A_ALONG_K == 1u));
}

fn cell_b(k: u32, four: u32) -> u32 {
  return k * STRIDE_B + (four ^ select(0u, k / 4u * APART % min(8u, STRIDE_B), B_ALONG_K == 1u));
}

// Puts a block into workgroup memory: column k of the block is a vector of four rows of A, or columns of B.
fn stage_a(index: u32, iteration: u32, block: mat4x4<f32>) {
  if BLOCKS_A % THREADS != 0u && index + iteration * THREADS >= BLOCKS_A {
    return;
  }
  let place = place_a(index) + iteration_offset_a(iteration);
  let cell = cell_a(place.y, place.x / 4u);
  sh_a[cell] = block[0];
  sh_a[cell + STRIDE_A] = block[1];
  sh_a[cell + 2u * STRIDE_A] = block[2];
  if BLOCK_A == 4u {
    sh_a[cell + 3u * STRIDE_A] = block[3];
  }
}

fn stage_b(index: u32, iteration: u32, block: mat4x4<f32>) {
  if BLOCKS_B % THREADS != 0u && index + iteration * THREADS >= BLOCKS_B {
    return;
  }
  let place = place_b(index) + iteration_offset_b(iteration);
  let cell = cell_b(place.y, place.x / FOUR_STEP);
  sh_b[cell] = block[0];
  sh_b[cell + STRIDE_B] = block[1];
  sh_b[cell + 2u * STRIDE_B] = block[2];
  sh_b[cell + 3u * STRIDE_B] = block[3];
}

// Four rows of A, or columns of B, of an invocation's part, for a value of k of its slice.
fn staged_a(lane: Lane, k: u32, i4: u32) -> vec4<f32> {
  return sh_a[lane.k * STRIDE_A + cell_a(k, lane.row4 + i4 * ROWS)];
}

fn staged_b(lane: Lane, k: u32, j4: u32) -> vec4<f32> {
  return sh_b[lane.k * STRIDE_B + cell_b(k, lane.column4 + j4 * COLUMNS)];
}

// The sum of all slices of the result `i` of those that workgroup memory holds.
fn sum_of_slices(index: u32, i: u32) -> vec4<f32> {
  var sum = vec4<f32>();
  for (var slice = 0u; slice < SLICES; slice++) {
    sum += sh_a[i * THREADS + slice * LANES + index % LANES];
  }
  return sum;
}
