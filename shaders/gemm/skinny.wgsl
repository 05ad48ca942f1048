// C = activation(alpha · op(A) · op(B) + beta · C + bias) for each matrix of a batch, where A has few rows: what takes the
// time is reading B once.
//
// A workgroup makes ROWS rows and COLUMNS columns of C. It goes along k in turns; in each of them, an invocation
// multiplies AHEAD groups of vectors of B by what workgroup memory has of A, and fetches the vectors of the next turn in
// their place. Every TURNS turns, the next part of A is put into workgroup memory. LANES invocations share each sum and
// add their parts at the end. The first turn is filled up with zeros from its beginning, so that only what is fetched
// first is looked at whether it exists.
//
// Where B's rows run along k (TRANS_B), a group is a vector of each of SPAN rows, and an invocation's neighbours read what
// follows along k. Otherwise it is what SPAN columns have in 4 rows, and its neighbours read what follows in those rows. V
// is a vector if the starts, the leading dimension, the batch stride and the extent along memory of B are whole vectors,
// else one number. A is read number by number.
//
// With TRANS_C, the product was transposed as a whole, so that few columns became few rows: C is written by columns.
//
// needs: TA, T, TC, A, ROWS, LANES, SPAN, AHEAD, TURNS, TRANS_A, TRANS_B, TRANS_C, ACTIVATION, lib/matmul, lanes

const THREADS: u32 = 256u;
const GROUPS: u32 = THREADS / LANES;
const COLUMNS: u32 = GROUPS * SPAN;
// From an invocation to the next of its sums.
const STRIDE: u32 = TRANS_B + (1u - TRANS_B) * GROUPS;
// Vectors of a group, and how much of k it is.
const PART: u32 = TRANS_B * SPAN + (1u - TRANS_B) * 4u * SPAN / WIDTH;
const DEPTH: u32 = TRANS_B * WIDTH + (1u - TRANS_B) * 4u;
const STARTS: u32 = TRANS_B * SPAN + 1u - TRANS_B;
const TURN: u32 = LANES * AHEAD * DEPTH;

// The part of A in workgroup memory: fours along k, row by row.
const FOURS: u32 = TURNS * TURN / 4u;
const FETCHES: u32 = (ROWS * FOURS + THREADS - 1u) / THREADS;
// An invocation's sums, row by row, in fours, of which those of a round pass through workgroup memory together. They
// make so many fours of C, and PARTS invocations add up the lanes of each.
const QUADS: u32 = (ROWS * SPAN + 3u) / 4u;
const ROUND: u32 = min(QUADS, 4u);
const OUTPUTS: u32 = ROUND * GROUPS;
const PARTS: u32 = min(min(THREADS / OUTPUTS, LANES), 8u);

const_assert TURN % 4u == 0u && THREADS % LANES == 0u;
const_assert TRANS_B == 1u || SPAN % WIDTH == 0u;
const_assert ROWS * SPAN <= 4u || QUADS % ROUND == 0u;
const_assert PARTS > 0u && LANES % PARTS == 0u;

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

// Four numbers of A for the part from `k` on, something of A where there is nothing. Neighbours read what is adjacent in
// memory. Loads under conditions would wait for each other.
fn fetch_a(tile: Tile, k: u32, i: u32) -> vec4<f32> {
  let place = place_a(i);
  let row = min(tile.row + place.x, params.m - 1u);
  let column = k + 4u * place.y;
  let base = params.a_offset + tile.batch * params.a_batch;
  let ld = select(1u, params.a_ld, TRANS_A == 1u);
  let first = base + select(row * params.a_ld, row, TRANS_A == 1u);
  let at = min(column + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(tile.end - 1u)) * ld + first;
  return vec4<f32>(f32(a[at.x]), f32(a[at.y]), f32(a[at.z]), f32(a[at.w]));
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

// Where B begins for an invocation: in its column `j`, or in its first row. Beyond the last column lies something of B,
// whose products are not written.
fn start_b(tile: Tile, j: u32) -> u32 {
  let base = (params.b_offset + tile.batch * params.b_batch) / WIDTH;
  let ld = params.b_ld / WIDTH;
  if TRANS_B == 1u {
    return base + min(tile.column + tile.group * SPAN + j, params.n - 1u) * ld + tile.lane;
  }
  return base + min(tile.column / WIDTH + tile.group, params.n / WIDTH - 1u) + tile.lane * 4u * ld;
}

// From there to the vector `j` of the turn's group `u`.
fn vector_b(u: u32, j: u32) -> u32 {
  if TRANS_B == 1u {
    return u * LANES;
  }
  return (u * LANES * 4u + j % 4u) * (params.b_ld / WIDTH) + j / 4u * GROUPS;
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
    for (var l = 0u; l < WIDTH; l++) {
      y[j * WIDTH + l] = numbers[l];
    }
  }
  return y;
}

// The numbers of a row of A that an invocation's group `u` is multiplied by.
fn along_k(tile: Tile, row: u32, u: u32) -> array<f32, DEPTH> {
  var x: array<f32, DEPTH>;
  if DEPTH == 1u {
    let k = u * LANES + tile.lane;
    x[0] = sh[row * FOURS + k / 4u][k % 4u];
    return x;
  }
  for (var h = 0u; h < DEPTH / 4u; h++) {
    let four = sh[row * FOURS + (u * (DEPTH / 4u) + h) * LANES + tile.lane];
    for (var i = 0u; i < 4u; i++) {
      x[4u * h + i] = four[i];
    }
  }
  return x;
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
  let tile = Tile(
    place.x * ROWS,
    place.y * COLUMNS,
    place.z,
    end,
    index / STRIDE % LANES,
    select(index % GROUPS, index / LANES, TRANS_B == 1u),
  );
  let turns = (end + TURN - 1u) / TURN;
  let pad = turns * TURN - end;

  var starts: array<u32, STARTS>;
  for (var j = 0u; j < STARTS; j++) {
    starts[j] = start_b(tile, j);
  }
  let stored = select(vec2<u32>(end, params.n), vec2<u32>(params.n, end), TRANS_B == 1u);
  let last = (params.b_offset + tile.batch * params.b_batch + (stored.x - 1u) * params.b_ld + stored.y) / WIDTH - 1u;

  var sums: array<f32, 4u * QUADS>;
  var next_a: array<vec4<f32>, FETCHES>;
  for (var f = 0u; f < FETCHES; f++) {
    let four = 4u * place_a(index + f * THREADS).y + vec4<u32>(0u, 1u, 2u, 3u);
    next_a[f] = select(vec4<f32>(), fetch_a(tile, 0u - pad, index + f * THREADS), four >= vec4<u32>(pad));
  }
  var next_b: array<V, AHEAD * PART>;
  var at = 0u - along_b(pad);
  for (var u = 0u; u < AHEAD; u++) {
    for (var j = 0u; j < PART; j++) {
      let k = (u * LANES + tile.lane) * DEPTH + (1u - TRANS_B) * (j % 4u);
      let v = b[min(starts[j * TRANS_B] + at + vector_b(u, j), last)];
      next_b[u * PART + j] = select(V(), v, k >= pad);
    }
  }
  at += along_b(TURN);
  for (var done = 0u; done < turns; done += TURNS) {
    workgroupBarrier();
    for (var f = 0u; f < FETCHES; f++) {
      let to = place_a(index + f * THREADS);
      if to.x < ROWS {
        sh[to.x * FOURS + slot(to.y)] = next_a[f];
      }
    }
    workgroupBarrier();
    for (var f = 0u; f < FETCHES; f++) {
      next_a[f] = fetch_a(tile, (done + TURNS) * TURN - pad, index + f * THREADS);
    }
    for (var turn = 0u; turn < min(TURNS, turns - done); turn++) {
      for (var u = 0u; u < AHEAD; u++) {
        var now: array<V, PART>;
        for (var j = 0u; j < PART; j++) {
          now[j] = next_b[u * PART + j];
          next_b[u * PART + j] = b[min(starts[j * TRANS_B] + at + vector_b(u, j), last)];
        }
        var y = numbers_of_b(now);
        for (var i = 0u; i < ROWS; i++) {
          var x = along_k(tile, i, turn * AHEAD + u);
          for (var l = 0u; l < DEPTH; l++) {
            for (var j = 0u; j < SPAN; j++) {
              let number = select((j / WIDTH * 4u + l) * WIDTH + j % WIDTH, j * WIDTH + l, TRANS_B == 1u);
              sums[i * SPAN + j] = fma(x[l], y[number], sums[i * SPAN + j]);
            }
          }
        }
      }
      at += along_b(TURN);
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
