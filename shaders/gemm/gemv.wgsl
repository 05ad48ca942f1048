// C = activation(alpha · op(A) · B + beta · C + bias) for each matrix of a batch, where A is one row, and B's
// rows don't run along k: what takes the time is reading B once.
//
// A workgroup makes COLUMNS columns of C. Each of its invocations reads a vector of B from UNROLL rows at
// once, and its neighbours what follows in those rows; THREADS_PER_OUTPUT invocations share each sum and add
// their parts at the end. V is a vector if the start, the leading dimension, the batch stride and the columns
// of B are whole vectors, else one number.
//
// With TRANS_C, the product was transposed as a whole, so that one column became one row.
//
// needs: TA, T, TC, A, THREADS_PER_OUTPUT, UNROLL, TRANS_A, TRANS_C, ACTIVATION, lib/matmul, vec, lib/workgroup_tiles

const THREADS: u32 = 1024u;
const GROUPS: u32 = THREADS / THREADS_PER_OUTPUT;
const COLUMNS: u32 = GROUPS * WIDTH;
const STEP: u32 = THREADS_PER_OUTPUT * UNROLL;

var<workgroup> sh: array<vec4<f32>, THREADS>;

// Where an invocation's sums belong.
struct Place {
  matrix: u32,
  // The first column of the workgroup.
  column: u32,
  lane: u32,
}

// Adds the lanes' parts of four columns of each group, the first at `inner` of the group's, and writes C
// there.
fn add_up(place: Place, index: u32, inner: u32, sums: vec4<f32>) {
  workgroupBarrier();
  sh[index] = sums;
  for (var half = THREADS_PER_OUTPUT / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if place.lane < half {
      sh[index] += sh[index + half * GROUPS];
    }
  }
  workgroupBarrier();
  // Neighbours write neighbouring columns.
  const EACH: u32 = min(WIDTH, 4u);
  let column = place.column + index / EACH * WIDTH + inner + index % EACH;
  if index < GROUPS * EACH && column < params.n {
    let at = params.c_offset + place.matrix * params.c_batch + column * select(1u, params.c_ld, TRANS_C == 1u);
    c[at] = finish(sh[index / EACH][index % EACH], 0u, column, at);
  }
}

fn make_tile(flat: u32, index: u32) {
  let tile = tile_place(flat);
  let place = Place(tile.z, tile.y * COLUMNS, index / GROUPS);
  let end = depth(tile.z);
  let column = place.column + index % GROUPS * WIDTH;
  let a_step = select(1u, params.a_ld, TRANS_A == 1u);
  let first_a = params.a_offset + place.matrix * params.a_batch;
  // Beyond the last column, another one's products are made, but not written.
  let first_b = (params.b_offset + place.matrix * params.b_batch + min(column, params.n - WIDTH)) / WIDTH;
  let ld = params.b_ld / WIDTH;

  var sums: array<f32, 8>;
  let steps = (end + STEP - 1u) / STEP;
  for (var step = 0u; step < steps; step++) {
    var v: array<V, UNROLL>;
    var x: array<f32, UNROLL>;
    for (var u = 0u; u < UNROLL; u++) {
      // Beyond k, the last row is read and not used: loads under conditions would wait for each other.
      let k = step * STEP + u * THREADS_PER_OUTPUT + place.lane;
      let row = min(k, end - 1u);
      v[u] = select(V(), b[first_b + row * ld], k < end);
      x[u] = select(0.0, f32(a[first_a + row * a_step]), k < end);
    }
    for (var u = 0u; u < UNROLL; u++) {
      let numbers = unpack(v[u]);
      for (var l = 0u; l < WIDTH; l++) {
        sums[l] = fma(x[u], numbers[l], sums[l]);
      }
    }
  }

  add_up(place, index, 0u, vec4<f32>(sums[0], sums[1], sums[2], sums[3]));
  if WIDTH == 8u {
    add_up(place, index, 4u, vec4<f32>(sums[4], sums[5], sums[6], sums[7]));
  }
}
