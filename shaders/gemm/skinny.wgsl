// C = activation(alpha · op(A) · op(B) + beta · C + bias) for each matrix of a batch, where A has few rows:
// what takes the time is reading B once.
//
// A workgroup makes ROWS rows and COLUMNS columns of C. It goes along k by k-blocks; in each, an
// invocation multiplies PREFETCH groups of vectors of B by what workgroup memory has of A, and fetches the
// vectors of the next k-block in their place. THREADS_PER_OUTPUT invocations share each sum and add their parts
// at the end. The first k-block is filled up with zeros from its beginning, so that only what is fetched first
// is looked at whether it exists.
//
// The next part of A is put into workgroup memory every STAGED_K_BLOCKS k-blocks. If that is 0, there are two parts,
// each for half of a k-block: while one is used, the other is written, so that one barrier is enough. Halves of k-blocks
// are fetched without branches unless LATE_ZEROS: the zeros may reach into the second half of the first k-block,
// which is fetched only before the loop then.
//
// Where B's rows run along k (TRANS_B), a group is a vector of each of COLUMNS_PER_THREAD rows, and an invocation's
// neighbours read what follows along k. Otherwise it is what COLUMNS_PER_THREAD columns have in 4 rows, and its neighbours
// read what follows in those rows. V is a vector if the starts, the leading dimension, the batch stride and
// the extent along memory of B are whole vectors, else one number. So is A in vec4s if A_VEC4S, else it is
// read number by number.
//
// With TRANS_C, the product was transposed as a whole, so that few columns became few rows: C is written by
// columns.
//
// needs: TA, T, TC, A, ROWS, THREADS_PER_OUTPUT, COLUMNS_PER_THREAD, PREFETCH, STAGED_K_BLOCKS, A_VEC4S, LATE_ZEROS,
// TRANS_A, TRANS_B, TRANS_C, ACTIVATION, lib/matmul, lib/few_rows, vec, lib/workgroup_tiles

const THREADS: u32 = 256u;
const GROUPS: u32 = THREADS / THREADS_PER_OUTPUT;
const COLUMNS: u32 = GROUPS * COLUMNS_PER_THREAD;
// From an invocation to the next of its sums.
const STRIDE: u32 = TRANS_B + (1u - TRANS_B) * GROUPS;
// Vectors of a group, and how much of k it is.
const PART: u32 = TRANS_B * COLUMNS_PER_THREAD + (1u - TRANS_B) * 4u * COLUMNS_PER_THREAD / WIDTH;
const DEPTH: u32 = TRANS_B * WIDTH + (1u - TRANS_B) * 4u;
const K_BLOCK: u32 = THREADS_PER_OUTPUT * PREFETCH * DEPTH;

// The parts of A in workgroup memory, in vec4s along k, row by row.
const PARTS_OF_A: u32 = select(1u, 2u, STAGED_K_BLOCKS == 0u);
const VEC4S: u32 = select(STAGED_K_BLOCKS * K_BLOCK, K_BLOCK / 2u, STAGED_K_BLOCKS == 0u) / 4u;
const FETCHES: u32 = (ROWS * VEC4S + THREADS - 1u) / THREADS;
// An invocation's sums, row by row, in vec4s, of which those of a round pass through workgroup memory
// together. They make so many vec4s of C, and PARTS invocations add up the lanes of each.
const SUM_VEC4S: u32 = (ROWS * COLUMNS_PER_THREAD + 3u) / 4u;
const ROUND: u32 = min(SUM_VEC4S, max(PARTS_OF_A * ROWS * VEC4S / THREADS, 4u));
const OUTPUTS: u32 = ROUND * GROUPS;
const PARTS: u32 = min(min(THREADS / OUTPUTS, THREADS_PER_OUTPUT), 8u);

const_assert PREFETCH % PARTS_OF_A == 0u && K_BLOCK % (4u * PARTS_OF_A) == 0u && THREADS % THREADS_PER_OUTPUT == 0u;
const_assert A_VEC4S == 0u || TRANS_A == 0u;
const_assert TRANS_B == 1u || COLUMNS_PER_THREAD % WIDTH == 0u;
const_assert ROWS * COLUMNS_PER_THREAD <= 4u || SUM_VEC4S % ROUND == 0u;
const_assert PARTS > 0u && THREADS_PER_OUTPUT % PARTS == 0u;

var<workgroup> sh: array<vec4<f32>, max(PARTS_OF_A * ROWS * VEC4S, ROUND * THREADS)>;

// Where a workgroup's part of C lies, and what an invocation has to do with it.
struct Tile {
  row: u32,
  column: u32,
  batch: u32,
  // Length of the sums.
  end: u32,
  // Which of the lanes that share a sum it is.
  lane: u32,
  // Where B begins for an invocation, how many columns follow its first one, and the first and
  // the last vector of the batch's B.
  first: u32,
  following: u32,
  begin: u32,
  last: u32,
}

fn tile_of(place: vec3<u32>, end: u32, lane: u32, group: u32) -> Tile {
  let column = place.y * COLUMNS;
  let ld = params.b_ld / WIDTH;
  let base = params.b_offset + place.z * params.b_batch;
  let column_b = min(column + group * COLUMNS_PER_THREAD, params.n - 1u);
  let across_k = min(column / WIDTH + group, params.n / WIDTH - 1u) + lane * 4u * ld;
  let first = base / WIDTH + select(across_k, column_b * ld + lane, TRANS_B == 1u);
  let stored = select(vec2<u32>(end, params.n), vec2<u32>(params.n, end), TRANS_B == 1u);
  let size = base + (stored.x - 1u) * params.b_ld + stored.y;
  return Tile(
    place.x * ROWS,
    column,
    place.z,
    end,
    lane,
    first,
    params.n - 1u - column_b,
    base / WIDTH,
    size / WIDTH - 1u,
  );
}

// Where the vector `j` of group `u` of the k-block at `at` lies. Beyond the last column, it is something of B
// that is not used.
fn place_b(tile: Tile, at: u32, u: u32, j: u32) -> u32 {
  let ld = params.b_ld / WIDTH;
  if TRANS_B == 1u {
    return tile.first + at + u * THREADS_PER_OUTPUT + min(j, tile.following) * ld;
  }
  return tile.first + at + (u * THREADS_PER_OUTPUT * 4u + j % 4u) * ld + j / 4u * GROUPS;
}

// The vector there, or something of B beyond its last row.
fn fetch_b(tile: Tile, at: u32, u: u32, j: u32) -> V {
  return b[min(place_b(tile, at, u, j), tile.last)];
}

// The vector there, or something of B before its first row.
fn fetch_first_b(tile: Tile, at: u32, u: u32, j: u32) -> V {
  return b[clamp(place_b(tile, at, u, j), tile.begin, tile.last)];
}

// From a vector of B to the one that is `k` further along k.
fn along_b(k: u32) -> u32 {
  return select(k * (params.b_ld / WIDTH), k / WIDTH, TRANS_B == 1u);
}

// The elements in a group's vectors.
fn numbers_of_b(vectors: array<V, PART>) -> array<f32, PART * WIDTH> {
  var v = vectors;
  var y: array<f32, PART * WIDTH>;
  for (var j = 0u; j < PART; j++) {
    var numbers = unpack(v[j]);
    for (var l = 0u; l < WIDTH; l++) { y[j * WIDTH + l] = numbers[l]; }
  }
  return y;
}

// The elements of a row of A that an invocation's group `u` of those for a part of A is multiplied by.
fn along_k(tile: Tile, part: u32, row: u32, u: u32) -> array<f32, DEPTH> {
  var x: array<f32, DEPTH>;
  let first = (part * ROWS + row) * VEC4S;
  let k = u * THREADS_PER_OUTPUT + tile.lane;
  if DEPTH == 1u {
    x[0] = sh[first + k / 4u][k % 4u];
  }
  for (var h = 0u; h < DEPTH / 4u; h++) {
    let four = sh[first + (u * (DEPTH / 4u) + h) * THREADS_PER_OUTPUT + tile.lane];
    for (var i = 0u; i < 4u; i++) { x[4u * h + i] = four[i]; }
  }
  return x;
}

// Adds the products of a group's vectors and of what they meet in a part of A: group `u` of those that it is
// for.
fn add_products(
  tile: Tile,
  part: u32,
  u: u32,
  vectors: array<V, PART>,
  sums: ptr<function, array<f32, 4u * SUM_VEC4S>>,
) {
  var y = numbers_of_b(vectors);
  for (var i = 0u; i < ROWS; i++) {
    var x = along_k(tile, part, i, u);
    for (var l = 0u; l < DEPTH; l++) {
      for (var j = 0u; j < COLUMNS_PER_THREAD; j++) {
        let number = select((j / WIDTH * 4u + l) * WIDTH + j % WIDTH, j * WIDTH + l, TRANS_B == 1u);
        (*sums)[i * COLUMNS_PER_THREAD + j] = fma(x[l], y[number], (*sums)[i * COLUMNS_PER_THREAD + j]);
      }
    }
  }
}

// Multiplies what was fetched of B for `k_block` of those that A's part is for, and fetches what is at `at`
// instead.
fn multiply(
  tile: Tile,
  k_block: u32,
  at: u32,
  next: ptr<function, array<V, PREFETCH * PART>>,
  sums: ptr<function, array<f32, 4u * SUM_VEC4S>>,
) {
  for (var u = 0u; u < PREFETCH; u++) {
    var now: array<V, PART>;
    for (var j = 0u; j < PART; j++) {
      now[j] = (*next)[u * PART + j];
      (*next)[u * PART + j] = fetch_b(tile, at, u, j);
    }
    add_products(tile, 0u, k_block * PREFETCH + u, now, sums);
  }
}

// Multiplies what was fetched of B for a half of a k-block.
fn multiply_half(
  tile: Tile,
  half: u32,
  next: ptr<function, array<V, PREFETCH * PART>>,
  sums: ptr<function, array<f32, 4u * SUM_VEC4S>>,
) {
  for (var u = 0u; u < PREFETCH / 2u; u++) {
    var now: array<V, PART>;
    for (var j = 0u; j < PART; j++) { now[j] = (*next)[(half * (PREFETCH / 2u) + u) * PART + j]; }
    add_products(tile, half, u, now, sums);
  }
}

// Fetches B for a half of the k-block at `at`, which exists.
fn fetch_half(tile: Tile, half: u32, at: u32, next: ptr<function, array<V, PREFETCH * PART>>) {
  for (var u = half * (PREFETCH / 2u); u < (half + 1u) * (PREFETCH / 2u); u++) {
    for (var j = 0u; j < PART; j++) {
      if TRANS_B == 0u && COLUMNS_PER_THREAD > WIDTH {
        // Some of the columns may lie beyond the last one.
        (*next)[u * PART + j] = fetch_b(tile, at, u, j);
      } else {
        (*next)[u * PART + j] = b[place_b(tile, at, u, j)];
      }
    }
  }
}

// Makes PARTS parts of each four of a round's sums, one part after another.
fn add_lanes(index: u32) {
  workgroupBarrier();
  // Neighbours read what is adjacent.
  let output = select(index % OUTPUTS, index / PARTS, TRANS_B == 1u);
  let part = select(index / OUTPUTS, index % PARTS, TRANS_B == 1u);
  let group = output % GROUPS * select(1u, THREADS_PER_OUTPUT, TRANS_B == 1u);
  var sum = vec4<f32>();
  if index < OUTPUTS * PARTS {
    for (var lane = part; lane < THREADS_PER_OUTPUT; lane += PARTS) {
      sum += sh[output / GROUPS * THREADS + group + lane * STRIDE];
    }
  }
  workgroupBarrier();
  if index < OUTPUTS * PARTS {
    sh[part * OUTPUTS + output] = sum;
  }
  workgroupBarrier();
}

// The column in the tile of one of a group's columns.
fn column_of(group: u32, inner: u32) -> u32 {
  if TRANS_B == 1u {
    return group * COLUMNS_PER_THREAD + inner;
  }
  return (inner / WIDTH * GROUPS + group) * WIDTH + inner % WIDTH;
}

fn make_tile(flat: u32, index: u32) {
  let place = tile_place(flat);
  let end = depth(place.z);
  let tile = tile_of(place, end, index / STRIDE % THREADS_PER_OUTPUT, select(index % GROUPS, index / THREADS_PER_OUTPUT, TRANS_B == 1u));
  let k_blocks = (end + K_BLOCK - 1u) / K_BLOCK;
  let pad = k_blocks * K_BLOCK - end;

  var sums: array<f32, 4u * SUM_VEC4S>;
  var next_a: array<vec4<f32>, FETCHES>;
  for (var f = 0u; f < FETCHES; f++) {
    next_a[f] = first_of_a(tile, 0u, pad, index + f * THREADS);
  }
  var next_b: array<V, PREFETCH * PART>;
  var at = 0u - along_b(pad);
  for (var u = 0u; u < PREFETCH; u++) {
    for (var j = 0u; j < PART; j++) {
      let k = (u * THREADS_PER_OUTPUT + tile.lane) * DEPTH + (1u - TRANS_B) * (j % 4u);
      next_b[u * PART + j] = select(V(), fetch_first_b(tile, at, u, j), k >= pad);
    }
  }
  if STAGED_K_BLOCKS == 0u {
    put_a(0u, index, &next_a);
    for (var f = 0u; f < FETCHES; f++) {
      next_a[f] = first_of_a(tile, 4u * VEC4S, pad, index + f * THREADS);
    }
    for (var k_block = 1u; k_block <= k_blocks; k_block++) {
      let k = k_block * K_BLOCK - pad;
      // The halves are told apart by constants, so that what is fetched stays in registers. One is fetched
      // before the other is multiplied, not in place of what is just multiplied: a compiler would take other
      // registers for it, to ask for it early, and wait for it to copy it.
      workgroupBarrier();
      put_a(1u, index, &next_a);
      next_of_a(tile, index, k, &next_a);
      if LATE_ZEROS == 0u || k_block > 1u { fetch_half(tile, 1u, at, &next_b); }
      multiply_half(tile, 0u, &next_b, &sums);
      workgroupBarrier();
      put_a(0u, index, &next_a);
      next_of_a(tile, index, k + 4u * VEC4S, &next_a);
      // After the last k-block, what is fetched is not used, but exists: a half that begins behind the zeros of
      // a k-block, which fill at most its other half.
      at += along_b(select(pad, K_BLOCK, k_block < k_blocks));
      if LATE_ZEROS == 0u || k_block < k_blocks { fetch_half(tile, 0u, at, &next_b); }
      multiply_half(tile, 1u, &next_b, &sums);
    }
  } else {
    for (var done = 0u; done < k_blocks; done += STAGED_K_BLOCKS) {
      workgroupBarrier();
      put_a(0u, index, &next_a);
      workgroupBarrier();
      next_of_a(tile, index, (done + STAGED_K_BLOCKS) * K_BLOCK - pad, &next_a);
      // A loop of known length is scheduled as a whole.
      if done + STAGED_K_BLOCKS <= k_blocks {
        for (var k_block = 0u; k_block < STAGED_K_BLOCKS; k_block++) {
          at += along_b(K_BLOCK);
          multiply(tile, k_block, at, &next_b, &sums);
        }
      } else {
        for (var k_block = 0u; k_block < k_blocks - done; k_block++) {
          at += along_b(K_BLOCK);
          multiply(tile, k_block, at, &next_b, &sums);
        }
      }
    }
  }

  for (var round = 0u; round < SUM_VEC4S / ROUND; round++) {
    workgroupBarrier();
    // Sums in registers can't be picked by a number that isn't constant.
    for (var q = 0u; q < SUM_VEC4S; q++) {
      if q / ROUND == round {
        sh[q % ROUND * THREADS + index] =
          vec4<f32>(sums[4u * q], sums[4u * q + 1u], sums[4u * q + 2u], sums[4u * q + 3u]);
      }
    }
    add_lanes(index);
    for (var i = index; i < 4u * OUTPUTS; i += THREADS) {
      // Neighbours write neighbouring columns.
      let value = (round * ROUND + i / 4u / GROUPS) * 4u + i % 4u;
      let row = tile.row + value / COLUMNS_PER_THREAD;
      let column = tile.column + column_of(i / 4u % GROUPS, value % COLUMNS_PER_THREAD);
      if value < ROWS * COLUMNS_PER_THREAD && row < params.m && column < params.n {
        let at = params.c_offset
          + tile.batch * params.c_batch
          + select(row * params.c_ld + column, column * params.c_ld + row, TRANS_C == 1u);
        var sum = 0.0;
        for (var p = 0u; p < PARTS; p++) {
          sum += sh[p * OUTPUTS + i / 4u][i % 4u];
        }
        c[at] = finish(sum, row, column, at);
      }
    }
  }
}
