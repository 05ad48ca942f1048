// C = activation(alpha · op(A) · op(B) + beta · C + bias) for each matrix of a batch, where A has few rows: what takes the
// time is reading B once.
//
// A workgroup makes ROWS rows and COLUMNS columns of C. It goes along k in turns; in each of them, an invocation
// multiplies AHEAD groups of vectors of B by what workgroup memory has of A, and fetches the vectors of the next turn in
// their place. LANES invocations share each sum and add their parts at the end. The first turn is filled up with zeros
// from its beginning, so that only what is fetched first is looked at whether it exists.
//
// The next part of A is put into workgroup memory every TURNS turns. If that is 0, there are two parts, each for half of a
// turn: while one is used, the other is written, so that one barrier is enough.
//
// Where B's rows run along k (TRANS_B), a group is a vector of each of SPAN rows, and an invocation's neighbours read what
// follows along k. Otherwise it is what SPAN columns have in 4 rows, and its neighbours read what follows in those rows. V
// is a vector if the starts, the leading dimension, the batch stride and the extent along memory of B are whole vectors,
// else one number. So is A in fours if A_FOURS, else it is read number by number.
//
// With TRANS_C, the product was transposed as a whole, so that few columns became few rows: C is written by columns.
//
// needs: TA, T, TC, A, ROWS, LANES, SPAN, AHEAD, TURNS, A_FOURS, TRANS_A, TRANS_B, TRANS_C, ACTIVATION, lib/matmul,
// lanes

const THREADS: u32 = 256u;
const GROUPS: u32 = THREADS / LANES;
const COLUMNS: u32 = GROUPS * SPAN;
// From an invocation to the next of its sums.
const STRIDE: u32 = TRANS_B + (1u - TRANS_B) * GROUPS;
// Vectors of a group, and how much of k it is.
const PART: u32 = TRANS_B * SPAN + (1u - TRANS_B) * 4u * SPAN / WIDTH;
const DEPTH: u32 = TRANS_B * WIDTH + (1u - TRANS_B) * 4u;
const TURN: u32 = LANES * AHEAD * DEPTH;

// The parts of A in workgroup memory, in fours along k, row by row.
const PARTS_OF_A: u32 = select(1u, 2u, TURNS == 0u);
const FOURS: u32 = select(TURNS * TURN, TURN / 2u, TURNS == 0u) / 4u;
const FETCHES: u32 = (ROWS * FOURS + THREADS - 1u) / THREADS;
// An invocation's sums, row by row, in fours, of which those of a round pass through workgroup memory together. They
// make so many fours of C, and PARTS invocations add up the lanes of each.
const QUADS: u32 = (ROWS * SPAN + 3u) / 4u;
const ROUND: u32 = min(QUADS, 4u);
const OUTPUTS: u32 = ROUND * GROUPS;
const PARTS: u32 = min(min(THREADS / OUTPUTS, LANES), 8u);

const_assert AHEAD % PARTS_OF_A == 0u && TURN % (4u * PARTS_OF_A) == 0u && THREADS % LANES == 0u;
const_assert A_FOURS == 0u || TRANS_A == 0u;
const_assert TRANS_B == 1u || SPAN % WIDTH == 0u;
const_assert ROWS * SPAN <= 4u || QUADS % ROUND == 0u;
const_assert PARTS > 0u && LANES % PARTS == 0u;

@group(0) @binding(0) var<storage, read> a: array<TA>;
@group(0) @binding(1) var<storage, read> a_fours: array<vec4<TA>>;
@group(0) @binding(2) var<storage, read> b: array<V>;
@group(0) @binding(3) var<storage, read> bias: array<TC>;
@group(0) @binding(4) var<storage, read_write> c: array<TC>;

var<workgroup> sh: array<vec4<f32>, max(PARTS_OF_A * ROWS * FOURS, ROUND * THREADS)>;

// Where a workgroup's part of C lies, and what an invocation has to do with it.
struct Tile {
  row: u32,
  column: u32,
  batch: u32,
  // Length of the sums.
  end: u32,
  // Which of the lanes that share a sum it is.
  lane: u32,
  // Where B begins for an invocation, how many columns follow its first one, and B's last vector.
  first: u32,
  following: u32,
  last: u32,
}

fn tile_of(place: vec3<u32>, end: u32, lane: u32, group: u32) -> Tile {
  let column = place.y * COLUMNS;
  let ld = params.b_ld / WIDTH;
  let base = params.b_offset + place.z * params.b_batch;
  let column_b = min(column + group * SPAN, params.n - 1u);
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
    size / WIDTH - 1u,
  );
}

// Four numbers of A for the part from `k` on, something of A where there is nothing. Neighbours read what is adjacent in
// memory. Loads under conditions would wait for each other.
fn fetch_a(tile: Tile, k: u32, i: u32) -> vec4<f32> {
  let place = place_a(i);
  let row = min(tile.row + place.x, params.m - 1u);
  let column = k + 4u * place.y;
  let base = params.a_offset + tile.batch * params.a_batch;
  if A_FOURS == 1u {
    return vec4<f32>(a_fours[(base + row * params.a_ld + min(column, tile.end - 4u)) / 4u]);
  }
  let ld = select(1u, params.a_ld, TRANS_A == 1u);
  let first = base + select(row * params.a_ld, row, TRANS_A == 1u);
  let at = min(column + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(tile.end - 1u)) * ld + first;
  return vec4<f32>(f32(a[at.x]), f32(a[at.y]), f32(a[at.z]), f32(a[at.w]));
}

// The same at `k` of the first turn, which begins with `pad` zeros.
fn first_of_a(tile: Tile, k: u32, pad: u32, i: u32) -> vec4<f32> {
  let at = k + 4u * place_a(i).y + vec4<u32>(0u, 1u, 2u, 3u);
  return select(vec4<f32>(), fetch_a(tile, k - pad, i), at >= vec4<u32>(pad));
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

// The vector `j` of group `u` of the turn at `at`. Beyond the last column or row, it is something of B that is not used.
fn fetch_b(tile: Tile, at: u32, u: u32, j: u32) -> V {
  let ld = params.b_ld / WIDTH;
  var place = tile.first + at;
  if TRANS_B == 1u {
    place += u * LANES + min(j, tile.following) * ld;
  } else {
    place += (u * LANES * 4u + j % 4u) * ld + j / 4u * GROUPS;
  }
  return b[min(place, tile.last)];
}

// From a vector of B to the one that is `k` further along k.
fn along_b(k: u32) -> u32 {
  return select(k * (params.b_ld / WIDTH), k / WIDTH, TRANS_B == 1u);
}

// The numbers in a group's vectors.
fn numbers_of_b(vectors: array<V, PART>) -> array<f32, PART * WIDTH> {
  var v = vectors;
  var y: array<f32, PART * WIDTH>;
  for (var j = 0u; j < PART; j++) {
    var numbers = unpack(v[j]);
    for (var l = 0u; l < WIDTH; l++) { y[j * WIDTH + l] = numbers[l]; }
  }
  return y;
}

// The numbers of a row of A that an invocation's group `u` of those for a part of A is multiplied by.
fn along_k(tile: Tile, part: u32, row: u32, u: u32) -> array<f32, DEPTH> {
  var x: array<f32, DEPTH>;
  let first = (part * ROWS + row) * FOURS;
  let k = u * LANES + tile.lane;
  if DEPTH == 1u {
    x[0] = sh[first + k / 4u][k % 4u];
  }
  for (var h = 0u; h < DEPTH / 4u; h++) {
    let four = sh[first + (u * (DEPTH / 4u) + h) * LANES + tile.lane];
    for (var i = 0u; i < 4u; i++) { x[4u * h + i] = four[i]; }
  }
  return x;
}

// Puts what was fetched of A into a part of workgroup memory.
fn put_a(part: u32, index: u32, next: ptr<function, array<vec4<f32>, FETCHES>>) {
  for (var f = 0u; f < FETCHES; f++) {
    let to = place_a(index + f * THREADS);
    if to.x < ROWS { sh[(part * ROWS + to.x) * FOURS + slot(to.y)] = (*next)[f]; }
  }
}

// Fetches the part of A from `k` on.
fn next_of_a(tile: Tile, index: u32, k: u32, next: ptr<function, array<vec4<f32>, FETCHES>>) {
  for (var f = 0u; f < FETCHES; f++) {
    (*next)[f] = fetch_a(tile, k, index + f * THREADS);
  }
}

// Multiplies what was fetched of B for `turn` of those that a part of A is for, or for that half of one, and fetches what
// is at `at` instead.
fn multiply(
  tile: Tile,
  turn: u32,
  at: u32,
  next: ptr<function, array<V, AHEAD * PART>>,
  sums: ptr<function, array<f32, 4u * QUADS>>,
) {
  for (var u = 0u; u < AHEAD / PARTS_OF_A; u++) {
    let group = select(u, turn * (AHEAD / 2u) + u, TURNS == 0u);
    var now: array<V, PART>;
    for (var j = 0u; j < PART; j++) {
      now[j] = (*next)[group * PART + j];
      // Many vectors ahead leave no registers for others.
      if TURNS > 0u { (*next)[group * PART + j] = fetch_b(tile, at, group, j); }
    }
    var y = numbers_of_b(now);
    for (var i = 0u; i < ROWS; i++) {
      var x = along_k(tile, select(0u, turn, TURNS == 0u), i, select(turn * AHEAD + u, u, TURNS == 0u));
      for (var l = 0u; l < DEPTH; l++) {
        for (var j = 0u; j < SPAN; j++) {
          let number = select((j / WIDTH * 4u + l) * WIDTH + j % WIDTH, j * WIDTH + l, TRANS_B == 1u);
          (*sums)[i * SPAN + j] = fma(x[l], y[number], (*sums)[i * SPAN + j]);
        }
      }
    }
    for (var j = 0u; j < PART; j++) {
      if TURNS == 0u { (*next)[group * PART + j] = fetch_b(tile, at, group, j); }
    }
  }
}

// Makes PARTS parts of each four of a round's sums, one part after another.
fn add_lanes(index: u32) {
  workgroupBarrier();
  // Neighbours read what is adjacent.
  let output = select(index % OUTPUTS, index / PARTS, TRANS_B == 1u);
  let part = select(index / OUTPUTS, index % PARTS, TRANS_B == 1u);
  let group = output % GROUPS * select(1u, LANES, TRANS_B == 1u);
  var sum = vec4<f32>();
  if index < OUTPUTS * PARTS {
    for (var lane = part; lane < LANES; lane += PARTS) {
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
    return group * SPAN + inner;
  }
  return (inner / WIDTH * GROUPS + group) * WIDTH + inner % WIDTH;
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
  let tile = tile_of(place, end, index / STRIDE % LANES, select(index % GROUPS, index / LANES, TRANS_B == 1u));
  let turns = (end + TURN - 1u) / TURN;
  let pad = turns * TURN - end;

  var sums: array<f32, 4u * QUADS>;
  var next_a: array<vec4<f32>, FETCHES>;
  for (var f = 0u; f < FETCHES; f++) {
    next_a[f] = first_of_a(tile, 0u, pad, index + f * THREADS);
  }
  var next_b: array<V, AHEAD * PART>;
  var at = 0u - along_b(pad);
  for (var u = 0u; u < AHEAD; u++) {
    for (var j = 0u; j < PART; j++) {
      let k = (u * LANES + tile.lane) * DEPTH + (1u - TRANS_B) * (j % 4u);
      next_b[u * PART + j] = select(V(), fetch_b(tile, at, u, j), k >= pad);
    }
  }
  if TURNS == 0u {
    put_a(0u, index, &next_a);
    for (var f = 0u; f < FETCHES; f++) {
      next_a[f] = first_of_a(tile, 4u * FOURS, pad, index + f * THREADS);
    }
    for (var turn = 1u; turn <= turns; turn++) {
      at += along_b(TURN);
      let k = turn * TURN - pad;
      // The halves are told apart by constants, so that what is fetched stays in registers.
      workgroupBarrier();
      put_a(1u, index, &next_a);
      next_of_a(tile, index, k, &next_a);
      multiply(tile, 0u, at, &next_b, &sums);
      workgroupBarrier();
      put_a(0u, index, &next_a);
      next_of_a(tile, index, k + 4u * FOURS, &next_a);
      multiply(tile, 1u, at, &next_b, &sums);
    }
  } else {
    for (var done = 0u; done < turns; done += TURNS) {
      workgroupBarrier();
      put_a(0u, index, &next_a);
      workgroupBarrier();
      next_of_a(tile, index, (done + TURNS) * TURN - pad, &next_a);
      // A loop of known length is scheduled as a whole.
      if done + TURNS <= turns {
        for (var turn = 0u; turn < TURNS; turn++) {
          at += along_b(TURN);
          multiply(tile, turn, at, &next_b, &sums);
        }
      } else {
        for (var turn = 0u; turn < turns - done; turn++) {
          at += along_b(TURN);
          multiply(tile, turn, at, &next_b, &sums);
        }
      }
    }
  }

  for (var round = 0u; round < QUADS / ROUND; round++) {
    workgroupBarrier();
    // Sums in registers can't be picked by a number that isn't constant.
    for (var q = 0u; q < QUADS; q++) {
      if q / ROUND == round {
        sh[q % ROUND * THREADS + index] =
          vec4<f32>(sums[4u * q], sums[4u * q + 1u], sums[4u * q + 2u], sums[4u * q + 3u]);
      }
    }
    add_lanes(index);
    for (var i = index; i < 4u * OUTPUTS; i += THREADS) {
      // Neighbours write neighbouring columns.
      let value = (round * ROUND + i / 4u / GROUPS) * 4u + i % 4u;
      let row = tile.row + value / SPAN;
      let column = tile.column + column_of(i / 4u % GROUPS, value % SPAN);
      if value < ROWS * SPAN && row < params.m && column < params.n {
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
