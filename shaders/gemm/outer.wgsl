// C = activation(alpha · op(A) · op(B) + beta · C + bias) for each matrix of a batch, of sums so short that
// what takes the time is writing C, or waiting for memory once.
//
// Each invocation makes ROWS × COLUMNS_PER_THREAD results straight from memory, DEPTH values of k at a time: there is no
// barrier, and one wait for loads in each step. Its rows and columns are far apart, so that its neighbours
// read and write neighbouring elements, wherever rows begin in memory.
//
// If ACROSS is 0, params.tiles counts invocations, whose places run along the rows of C, matrix after matrix,
// and none idles beyond an edge. Else it counts workgroups of THREADS / ACROSS rows of ACROSS invocations,
// all of which meet the same columns of B in the first-level cache.
//
// The loop over k, `multiply`, is written by src/ops/matmul/outer.rs, as each number needs a name of its own.
// It calls the functions of this file.
//
// needs: TA, TB, TC, ROWS, COLUMNS_PER_THREAD, DEPTH, ACROSS, TRANS_A, TRANS_B, ACTIVATION, multiply, lib/matmul

const THREADS: u32 = 128u;
const DOWN: u32 = THREADS / max(ACROSS, 1u);

// Compilers differ in whether they evaluate what a constant || needn't: nothing may be divided by 0 there.
const_assert THREADS % max(ACROSS, 1u) == 0u;

// An invocation's first result, and from each to its next.
struct Place {
  row: u32,
  column: u32,
  down: u32,
  across: u32,
  matrix: u32,
}

fn place_of(flat: u32, index: u32) -> Place {
  if ACROSS == 0u {
    let number = flat * THREADS + index;
    let rows = number / params.tiles_n;
    return Place(
      rows % params.tiles_m,
      number % params.tiles_n,
      params.tiles_m,
      params.tiles_n,
      rows / params.tiles_m,
    );
  }
  const WIDTH = max(ACROSS, 1u);
  let tile = tile_place(flat);
  return Place(
    tile.x * DOWN * ROWS + index / WIDTH,
    tile.y * WIDTH * COLUMNS_PER_THREAD + index % WIDTH,
    DOWN,
    WIDTH,
    tile.z,
  );
}

// Where op(A)'s row `i` of an invocation begins; beyond the last row, another one's products are made, but
// not written.
fn start_a(place: Place, i: u32) -> u32 {
  let row = min(place.row + i * place.down, params.m - 1u);
  return params.a_offset + place.matrix * params.a_batch + row * select(params.a_ld, 1u, TRANS_A == 1u);
}

fn start_b(place: Place, j: u32) -> u32 {
  let column = min(place.column + j * place.across, params.n - 1u);
  return params.b_offset + place.matrix * params.b_batch + column * select(1u, params.b_ld, TRANS_B == 1u);
}

// The element at `k`, from the start of its row or column on.
fn fetch_a(start: u32, k: u32) -> f32 {
  return f32(a[start + k * select(1u, params.a_ld, TRANS_A == 1u)]);
}

fn fetch_b(start: u32, k: u32) -> f32 {
  return f32(b[start + k * select(params.b_ld, 1u, TRANS_B == 1u)]);
}

// The element at `k`, or 0 where a sum has ended.
fn fetch_rest_a(start: u32, k: u32, end: u32) -> f32 {
  return select(0.0, fetch_a(start, min(k, end - 1u)), k < end);
}

fn fetch_rest_b(start: u32, k: u32, end: u32) -> f32 {
  return select(0.0, fetch_b(start, min(k, end - 1u)), k < end);
}

fn write_out(place: Place, i: u32, j: u32, sum: f32) {
  let row = place.row + i * place.down;
  let column = place.column + j * place.across;
  if row < params.m && column < params.n {
    let at = params.c_offset + place.matrix * params.c_batch + row * params.c_ld + column;
    c[at] = finish(sum, row, column, at);
  }
}

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) index: u32) {
  let flat = flat_group(workgroup.id, workgroup.count);
  if flat * select(1u, THREADS, ACROSS == 0u) + select(0u, index, ACROSS == 0u) >= params.tiles {
    return;
  }
  let place = place_of(flat, index);
  multiply(place, depth(place.matrix));
}
