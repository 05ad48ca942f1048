// C = activation(alpha · op(A) · op(B) + beta · C + bias) for each matrix of a batch, where A has few rows: what takes the
// time is reading B once.
//
// A workgroup makes ROWS rows and COLUMNS columns of C. In each step it puts a part of A into workgroup memory, while
// the vectors of B for the next step are already on their way into registers. LANES invocations share each sum and add
// their parts at the end.
//
// Where B's rows run along k (TRANS_B), an invocation reads SPAN of them, AHEAD vectors of each in a step, and its
// neighbours what follows along k. Otherwise it reads one vector from each of 4 · AHEAD rows, and its neighbours what
// follows in those rows. V is a vector if the starts, the leading dimension, the batch stride and the extent along
// memory of B are whole vectors, else one number. A is read number by number.
//
// With TRANS_C, the product was transposed as a whole, so that few columns became few rows: C is written by columns.
//
// needs: TA, T, TC, A, ROWS, LANES, SPAN, AHEAD, TRANS_A, TRANS_B, TRANS_C, ACTIVATION, lib/matmul, lanes

const THREADS: u32 = 256u;
const GROUPS: u32 = THREADS / LANES;
const COLUMNS: u32 = GROUPS * SPAN;
// From an invocation to the next of its sums.
const STRIDE: u32 = TRANS_B + (1u - TRANS_B) * GROUPS;
// What an invocation reads of B in a step: AHEAD times PART vectors, and how much of k they are.
const PART: u32 = TRANS_B * SPAN + (1u - TRANS_B) * 4u;
const LOADS: u32 = AHEAD * PART;
const DEPTH: u32 = AHEAD * (TRANS_B * WIDTH + (1u - TRANS_B) * 4u);
const STEP: u32 = LANES * DEPTH;

// The part of A for a step: fours along k, row by row.
const FOURS: u32 = STEP / 4u;
const FETCHES: u32 = (ROWS * FOURS + THREADS - 1u) / THREADS;
// An invocation's sums, row by row, in fours, of which those of a round pass through workgroup memory together.
const QUADS: u32 = (ROWS * SPAN + 3u) / 4u;
const ROUND: u32 = min(QUADS, 2u);
const VALUES: u32 = 4u * ROUND;

const_assert STEP % 4u == 0u && THREADS % LANES == 0u;
const_assert TRANS_B == 1u || SPAN == WIDTH;
const_assert ROWS * SPAN <= 4u || (ROWS * SPAN) % VALUES == 0u;

@group(0) @binding(0) var<storage, read> a: array<TA>;
@group(0) @binding(1) var<storage, read> b: array<V>;
@group(0) @binding(2) var<storage, read> bias: array<TC>;
@group(0) @binding(3) var<storage, read_write> c: array<TC>;

var<workgroup> sh: array<vec4<f32>, max(ROWS * FOURS, ROUND * THREADS)>;

// Where a workgroup's part of C lies, and what an invocation has to do with it.
struct Tile {
  row: u32,
  column: u32,
  batch: u32,
  // Length of the sums.
  end: u32,
  // Which of the lanes that share a sum it is, and which sums these are.
  lane: u32,
  group: u32,
}

// Four numbers of A for the step at `k`, 0 where there is nothing. Neighbours read what is adjacent in memory.
fn fetch_a(tile: Tile, k: u32, i: u32) -> vec4<f32> {
  let place = place_a(i);
  let row = tile.row + place.x;
  let column = k + 4u * place.y;
  let count = select(0u, min(max(tile.end, column) - column, 4u), place.x < ROWS && row < params.m);
  let ld = select(1u, params.a_ld, TRANS_A == 1u);
  let at = params.a_offset + tile.batch * params.a_batch + column * ld + select(row * params.a_ld, row, TRANS_A == 1u);
  var v = vec4<f32>();
  if count > 0u { v.x = f32(a[at]); }
  if count > 1u { v.y = f32(a[at + ld]); }
  if count > 2u { v.z = f32(a[at + 2u * ld]); }
  if count > 3u { v.w = f32(a[at + 3u * ld]); }
  return v;
}

// The row and the four of A that an invocation fetches.
fn place_a(i: u32) -> vec2<u32> {
  if TRANS_A == 1u {
    // Past the last four is past the last row.
    return select(vec2<u32>(ROWS, 0u), vec2<u32>(i % ROWS, i / ROWS), i < ROWS * FOURS);
  }
  return vec2<u32>(i / FOURS, i % FOURS);
}

// Where a four lies in its row of workgroup memory: of vectors of eight numbers, the first halves before the second, so
// that neighbours read what is adjacent.
fn slot(four: u32) -> u32 {
  if TRANS_B == 1u && WIDTH == 8u {
    let inner = four % (2u * LANES);
    return four - inner + inner % 2u * LANES + inner / 2u;
  }
  return four;
}

// The invocation's vectors of B for the step at `k`: 0 beyond the last, and something of B beyond its last column,
// whose products are not written.
fn fetch_b(tile: Tile, k: u32) -> array<V, LOADS> {
  var v: array<V, LOADS>;
  let base = params.b_offset + tile.batch * params.b_batch;
  let column = tile.column + tile.group * SPAN;
  let ld = params.b_ld / WIDTH;
  if TRANS_B == 1u {
    for (var j = 0u; j < SPAN; j++) {
      let row = base / WIDTH + min(column + j, params.n - 1u) * ld;
      for (var u = 0u; u < AHEAD; u++) {
        let at = k / WIDTH + u * LANES + tile.lane;
        if at * WIDTH < tile.end {
          v[j * AHEAD + u] = b[row + at];
        }
      }
    }
    return v;
  }
  let first = k + tile.lane * DEPTH;
  let at = (base + min(column, params.n - WIDTH)) / WIDTH + first * ld;
  for (var u = 0u; u < LOADS; u++) {
    if first + u < tile.end {
      v[u] = b[at + u * ld];
    }
  }
  return v;
}

// The numbers in the vectors `u` of each of B's rows along k, or in those of its rows 4 · u to 4 · u + 3.
fn numbers_of_b(vectors: array<V, LOADS>, u: u32) -> array<f32, PART * WIDTH> {
  var v = vectors;
  var y: array<f32, PART * WIDTH>;
  for (var j = 0u; j < PART; j++) {
    var numbers = unpack(v[select(PART * u + j, j * AHEAD + u, TRANS_B == 1u)]);
    for (var l = 0u; l < WIDTH; l++) {
      y[j * WIDTH + l] = numbers[l];
    }
  }
  return y;
}

// The numbers of a row of A that an invocation's vector `u` of each of B's rows is multiplied by.
fn along_k(tile: Tile, row: u32, u: u32) -> array<f32, WIDTH> {
  var x: array<f32, WIDTH>;
  if WIDTH == 1u {
    let k = u * LANES + tile.lane;
    x[0] = sh[row * FOURS + k / 4u][k % 4u];
    return x;
  }
  for (var h = 0u; h < WIDTH / 4u; h++) {
    let four = sh[row * FOURS + (u * (WIDTH / 4u) + h) * LANES + tile.lane];
    for (var i = 0u; i < 4u; i++) {
      x[4u * h + i] = four[i];
    }
  }
  return x;
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
  let place = tile_place(flat);
  let end = depth(place.z);
  let tile = Tile(
    place.x * ROWS,
    place.y * COLUMNS,
    place.z,
    end,
    index / STRIDE % LANES,
    select(index % GROUPS, index / LANES, TRANS_B == 1u),
  );

  var sums: array<f32, 4u * QUADS>;
  var next_a: array<vec4<f32>, FETCHES>;
  for (var f = 0u; f < FETCHES; f++) {
    next_a[f] = fetch_a(tile, 0u, index + f * THREADS);
  }
  var next_b = fetch_b(tile, 0u);
  let steps = (end + STEP - 1u) / STEP;
  for (var step = 0u; step < steps; step++) {
    workgroupBarrier();
    for (var f = 0u; f < FETCHES; f++) {
      let at = place_a(index + f * THREADS);
      if at.x < ROWS {
        sh[at.x * FOURS + slot(at.y)] = next_a[f];
      }
    }
    workgroupBarrier();
    let now = next_b;
    for (var f = 0u; f < FETCHES; f++) {
      next_a[f] = fetch_a(tile, (step + 1u) * STEP, index + f * THREADS);
    }
    next_b = fetch_b(tile, (step + 1u) * STEP);
    for (var u = 0u; u < AHEAD; u++) {
      var y = numbers_of_b(now, u);
      for (var i = 0u; i < ROWS; i++) {
        if TRANS_B == 1u {
          var x = along_k(tile, i, u);
          for (var l = 0u; l < WIDTH; l++) {
            for (var j = 0u; j < SPAN; j++) {
              sums[i * SPAN + j] = fma(x[l], y[j * WIDTH + l], sums[i * SPAN + j]);
            }
          }
        } else {
          let x = sh[i * FOURS + tile.lane * AHEAD + u];
          for (var l = 0u; l < 4u; l++) {
            for (var j = 0u; j < SPAN; j++) {
              sums[i * SPAN + j] = fma(x[l], y[l * WIDTH + j], sums[i * SPAN + j]);
            }
          }
        }
      }
    }
  }

  for (var turn = 0u; turn < QUADS / ROUND; turn++) {
    workgroupBarrier();
    // Sums in registers can't be picked by a number that isn't constant.
    for (var q = 0u; q < QUADS; q++) {
      if q / ROUND == turn {
        sh[q % ROUND * THREADS + index] =
          vec4<f32>(sums[4u * q], sums[4u * q + 1u], sums[4u * q + 2u], sums[4u * q + 3u]);
      }
    }
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
      workgroupBarrier();
      if tile.lane < half {
        for (var q = 0u; q < ROUND; q++) {
          sh[q * THREADS + index] += sh[q * THREADS + index + half * STRIDE];
        }
      }
    }
    workgroupBarrier();
    for (var i = index; i < VALUES * GROUPS; i += THREADS) {
      // Neighbours write neighbouring columns.
      let g = i / SPAN % GROUPS;
      let value = i / (SPAN * GROUPS) * SPAN + i % SPAN;
      let row = tile.row + (turn * VALUES + value) / SPAN;
      let column = tile.column + g * SPAN + i % SPAN;
      if turn * VALUES + value < ROWS * SPAN && row < params.m && column < params.n {
        let sum = sh[value / 4u * THREADS + g * (TRANS_B * LANES + 1u - TRANS_B)][value % 4u];
        let at = params.c_offset
          + tile.batch * params.c_batch
          + select(row * params.c_ld + column, column * params.c_ld + row, TRANS_C == 1u);
        c[at] = finish(sum, row, column, at);
      }
    }
  }
}
