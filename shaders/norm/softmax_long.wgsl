// y = exp(x − m) / Σ exp(x − m), m = max x, or its logarithm, of rows that are too long to be held.
//
// A workgroup works on each row. Its invocations keep HELD vectors each in registers and STAGED in workgroup memory, and
// read the others twice: the second time, they come from the device's cache, unless all rows that are worked on at a
// time are more than that holds. Of these, the sum is made beside the maximum, and scaled when that grows (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018).
//
// needs: T, LOG, IN_PLACE, LANES, HELD, STAGED (a multiple of STEP), the vec of a vector, the rows of vectors

alias A = f32;
// Vectors that an invocation asks for at a time where it doesn't keep them.
const AHEAD = max(16u / WIDTH, 4u);
// Vectors that an invocation asks for at a time where it keeps them in workgroup memory.
const STEP = 4u;
// Vectors that a workgroup keeps.
const KEPT = (HELD + STAGED) * LANES;

fn fetch(i: u32) -> V {
  if IN_PLACE == 1u {
    return y[params.y_offset + i];
  }
  return x[params.x_offset + i];
}

// The largest number so far, and the bits of the one with the largest magnitude: NaN has more than infinity.
struct Largest {
  number: f32,
  bits: u32,
}

fn larger(a: Largest, x: f32) -> Largest {
  return Largest(max(a.number, x), max(a.bits, bitcast<u32>(x) & 0x7fffffffu));
}

// Σ exp(x − m) of a vector.
fn exponentials(v: V, m: f32) -> f32 {
  let numbers = unpack(v);
  var sum = 0.0;
  for (var l = 0u; l < WIDTH; l++) {
    sum += exp_below(numbers[l], m);
  }
  return sum;
}

fn result(x: f32, m: f32, scale: f32) -> f32 {
  if LOG == 1u {
    return x - max(m, LOWEST) - scale;
  }
  return exp_below(x, m) * scale;
}

fn results(v: V, m: f32, scale: f32) -> array<A, WIDTH> {
  var numbers = unpack(v);
  for (var l = 0u; l < WIDTH; l++) {
    numbers[l] = result(numbers[l], m, scale);
  }
  return numbers;
}

// The whole workgroup has to come here; `slot` is the row's number in it.
fn softmax_row(number: u32, slot: u32, lane: u32) {
  // A workgroup without a row reads the last one.
  let start = rows_before() + min(number, params.rows - 1u) * params.length;
  // What is kept is there in every row.
  let row = row_at(start, params.length, true);
  let is_there = number < params.rows;
  let last = row.vectors - 1u;
  let source = row.first + lane;

  var held: array<V, HELD>;
  for (var j = 0u; j < HELD; j++) {
    held[j] = fetch(source + j * LANES);
  }
  var edge = -inf();
  if has_edge(row, lane) {
    edge = edge_of(fetch(edge_at(row, lane)), lane);
  }
  var largest = larger(Largest(-inf(), 0u), edge);
  for (var j = 0u; j < HELD; j++) {
    let numbers = unpack(held[j]);
    for (var l = 0u; l < WIDTH; l++) {
      largest = larger(largest, numbers[l]);
    }
  }
  for (var j = 0u; j < STAGED; j += STEP) {
    var ahead: array<V, STEP>;
    for (var i = 0u; i < STEP; i++) {
      ahead[i] = fetch(source + (HELD + j + i) * LANES);
    }
    for (var i = 0u; i < STEP; i++) {
      sh_staged[(j + i) * LANES + lane] = ahead[i];
      let numbers = unpack(ahead[i]);
      for (var l = 0u; l < WIDTH; l++) {
        largest = larger(largest, numbers[l]);
      }
    }
  }
  var sum = 0.0;
  for (var at = KEPT; at < row.vectors; at += AHEAD * LANES) {
    var ahead: array<V, AHEAD>;
    for (var j = 0u; j < AHEAD; j++) {
      ahead[j] = fetch(row.first + min(at + lane + j * LANES, last));
    }
    let before = largest.number;
    for (var j = 0u; j < AHEAD; j++) {
      // What is behind the end is the last vector again, which doesn't change the maximum.
      let numbers = unpack(ahead[j]);
      for (var l = 0u; l < WIDTH; l++) {
        largest = larger(largest, numbers[l]);
      }
    }
    sum *= exp_below(before, largest.number);
    for (var j = 0u; j < AHEAD; j++) {
      sum += select(0.0, exponentials(ahead[j], largest.number), at + lane + j * LANES < row.vectors);
    }
  }

  let highest = select(largest.number, nan(), largest.bits > 0x7f800000u);
  let m = lanes_reduce(MAX, lane, highest);
  sum *= exp_below(largest.number, m);
  if has_edge(row, lane) {
    sum += exp_below(edge, m);
  }
  for (var j = 0u; j < HELD; j++) {
    sum += exponentials(held[j], m);
  }
  for (var j = 0u; j < STAGED; j++) {
    sum += exponentials(sh_staged[j * LANES + lane], m);
  }
  let scale = softmax_scale(m, lanes_reduce(SUM, lane, sum));

  if is_there {
    for (var j = 0u; j < HELD; j++) {
      y[params.y_offset + source + j * LANES] = pack(results(held[j], m, scale));
    }
    for (var j = 0u; j < STAGED; j++) {
      y[params.y_offset + source + (HELD + j) * LANES] = pack(results(sh_staged[j * LANES + lane], m, scale));
    }
    for (var at = KEPT; at < row.vectors; at += AHEAD * LANES) {
      var ahead: array<V, AHEAD>;
      for (var j = 0u; j < AHEAD; j++) {
        ahead[j] = fetch(row.first + min(at + lane + j * LANES, last));
      }
      for (var j = 0u; j < AHEAD; j++) {
        if at + lane + j * LANES < row.vectors {
          y[params.y_offset + source + at + j * LANES] = pack(results(ahead[j], m, scale));
        }
      }
    }
    if has_edge(row, lane) {
      keep_edge(slot, lane, result(edge, m, scale));
    }
  }
}

// Members that join what the others have; all members read their results.
const JOINING = 32u;

// Vectors that an invocation keeps for itself in workgroup memory.
var<workgroup> sh_staged: array<V, max(STAGED * LANES, 1u)>;
var<workgroup> sh_lanes: array<f32, LANES>;
var<workgroup> sh_joined: array<f32, JOINING>;

// The reduction of the x of all invocations, for each of them. All have to come here.
fn lanes_reduce(op: u32, lane: u32, x: f32) -> f32 {
  sh_lanes[lane] = x;
  workgroupBarrier();
  if lane < JOINING {
    var part = x;
    for (var k = JOINING; k < LANES; k += JOINING) {
      part = combine(op, part, sh_lanes[lane + k]);
    }
    sh_joined[lane] = part;
  }
  workgroupBarrier();
  var joined = identity(op);
  for (var k = 0u; k < JOINING; k++) {
    joined = combine(op, joined, sh_joined[k]);
  }
  return joined;
}

@compute @workgroup_size(LANES)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let first = flat_group(workgroup.id, workgroup.count) * rows_per_group() - rows_before();
  for (var nth = 0u; nth < rows_per_group(); nth++) {
    softmax_row(first + nth, nth, lane);
  }
  store_seams(lane, first, rows_per_group(), params.rows, params.length);
}
