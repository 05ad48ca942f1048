// The core of every matrix product: a TILE_M × TILE_N tile of op(A) · op(B), held in registers.
//
// The operands pass through workgroup memory in steps of TILE_K, as blocks of 4 × 4: a kernel supplies `block_a` and
// `block_b`, which fetch one block and put 0 where there is nothing. While a step is multiplied, the blocks of the
// next are already on their way into registers. With two STAGES of workgroup memory a step needs one barrier.
//
// Each invocation holds THREAD_M × THREAD_N results, as vectors of four columns. Its rows and columns come in fours
// that are interleaved with those of its neighbours, so that neighbours read neighbouring words.
//
// needs: TILE_M, TILE_N, TILE_K, THREAD_M, THREAD_N, STAGES, block_a, block_b

const ROWS: u32 = TILE_M / THREAD_M;
const COLUMNS: u32 = TILE_N / THREAD_N;
const THREADS: u32 = ROWS * COLUMNS;
const THREAD_M4: u32 = THREAD_M / 4u;
const THREAD_N4: u32 = THREAD_N / 4u;
const RESULTS: u32 = THREAD_M * THREAD_N4;

// Blocks of a step, and how many of them an invocation fetches.
const BLOCKS_A: u32 = TILE_M * TILE_K / 16u;
const BLOCKS_B: u32 = TILE_N * TILE_K / 16u;
const FETCHES: u32 = (BLOCKS_A + BLOCKS_B + THREADS - 1u) / THREADS;
const BLOCKS_K: u32 = TILE_K / 4u;

// Rows of workgroup memory are one vector longer than the tile, against bank conflicts.
const STRIDE_A: u32 = TILE_M / 4u + 1u;
const STRIDE_B: u32 = TILE_N / 4u + 1u;

const_assert TILE_M % THREAD_M == 0u && TILE_N % THREAD_N == 0u;
const_assert THREAD_M % 4u == 0u && THREAD_N % 4u == 0u && TILE_K % 4u == 0u;

var<workgroup> sh_a: array<vec4<f32>, STAGES * TILE_K * STRIDE_A>;
var<workgroup> sh_b: array<vec4<f32>, STAGES * TILE_K * STRIDE_B>;

// Where a workgroup's tile lies.
struct Tile {
  row: u32,
  column: u32,
  batch: u32,
}

// Where an invocation's results lie in its tile, in fours.
struct Lane {
  row4: u32,
  column4: u32,
}

// Each 32 invocations cover 4 × 8 fours of the tile rather than a line of it: fewer words are read for more results.
fn lane_of(index: u32) -> Lane {
  const WIDTH = min(8u, COLUMNS);
  const HEIGHT = min(4u, ROWS);
  let square = index / (WIDTH * HEIGHT);
  let inner = index % (WIDTH * HEIGHT);
  let across = COLUMNS / WIDTH;
  return Lane((square / across) * HEIGHT + inner / WIDTH, (square % across) * WIDTH + inner % WIDTH);
}

// The tile's row or column at which the result `i` of an invocation lies.
fn result_row(lane: Lane, i: u32) -> u32 {
  return (lane.row4 + (i / 4u) * ROWS) * 4u + i % 4u;
}

fn result_column(lane: Lane, j4: u32) -> u32 {
  return (lane.column4 + j4 * COLUMNS) * 4u;
}

// Block `i` of the step at k: the blocks of A, then those of B.
fn fetch(i: u32, tile: Tile, k: u32) -> mat4x4<f32> {
  if i < BLOCKS_A {
    return block_a(tile, place_a(i) + vec2<u32>(tile.row, k));
  }
  if i < BLOCKS_A + BLOCKS_B {
    return block_b(tile, place_b(i - BLOCKS_A) + vec2<u32>(tile.column, k));
  }
  return mat4x4<f32>();
}

// A block's place in its tile, as (row or column, k). Neighbours take what is adjacent in memory.
fn place_a(i: u32) -> vec2<u32> {
  if A_ALONG_K == 1u {
    return vec2<u32>(i / BLOCKS_K, i % BLOCKS_K) * 4u;
  }
  return vec2<u32>(i % (TILE_M / 4u), i / (TILE_M / 4u)) * 4u;
}

fn place_b(i: u32) -> vec2<u32> {
  if B_ALONG_K == 1u {
    return vec2<u32>(i / BLOCKS_K, i % BLOCKS_K) * 4u;
  }
  return vec2<u32>(i % (TILE_N / 4u), i / (TILE_N / 4u)) * 4u;
}

// Puts block `i` into workgroup memory: column k of the block is a vector of four rows of A, or columns of B.
fn stage(i: u32, block: mat4x4<f32>, at: u32) {
  if i < BLOCKS_A {
    let place = place_a(i);
    let base = (at * TILE_K + place.y) * STRIDE_A + place.x / 4u;
    sh_a[base] = block[0];
    sh_a[base + STRIDE_A] = block[1];
    sh_a[base + 2u * STRIDE_A] = block[2];
    sh_a[base + 3u * STRIDE_A] = block[3];
  } else if i < BLOCKS_A + BLOCKS_B {
    let place = place_b(i - BLOCKS_A);
    let base = (at * TILE_K + place.y) * STRIDE_B + place.x / 4u;
    sh_b[base] = block[0];
    sh_b[base + STRIDE_B] = block[1];
    sh_b[base + 2u * STRIDE_B] = block[2];
    sh_b[base + 3u * STRIDE_B] = block[3];
  }
}

// The invocation's part of the tile's product over `length` values of k from `first` on.
fn tile_product(tile: Tile, lane: Lane, index: u32, first: u32, length: u32) -> array<vec4<f32>, RESULTS> {
  var sums: array<vec4<f32>, RESULTS>;
  var blocks: array<mat4x4<f32>, FETCHES>;
  for (var f = 0u; f < FETCHES; f++) {
    blocks[f] = fetch(index + f * THREADS, tile, first);
  }
  let steps = (length + TILE_K - 1u) / TILE_K;
  for (var step = 0u; step < steps; step++) {
    let at = step % STAGES;
    if STAGES == 1u {
      workgroupBarrier();
    }
    for (var f = 0u; f < FETCHES; f++) {
      stage(index + f * THREADS, blocks[f], at);
    }
    workgroupBarrier();
    if step + 1u < steps {
      for (var f = 0u; f < FETCHES; f++) {
        blocks[f] = fetch(index + f * THREADS, tile, first + (step + 1u) * TILE_K);
      }
    }
    for (var k = 0u; k < TILE_K; k++) {
      let row_a = (at * TILE_K + k) * STRIDE_A + lane.row4;
      let row_b = (at * TILE_K + k) * STRIDE_B + lane.column4;
      var b: array<vec4<f32>, THREAD_N4>;
      for (var j = 0u; j < THREAD_N4; j++) {
        b[j] = sh_b[row_b + j * COLUMNS];
      }
      for (var i = 0u; i < THREAD_M4; i++) {
        let a = sh_a[row_a + i * ROWS];
        for (var j = 0u; j < THREAD_N4; j++) {
          let r = i * 4u * THREAD_N4 + j;
          sums[r] += a.x * b[j];
          sums[r + THREAD_N4] += a.y * b[j];
          sums[r + 2u * THREAD_N4] += a.z * b[j];
          sums[r + 3u * THREAD_N4] += a.w * b[j];
        }
      }
    }
  }
  return sums;
}
