// C = activation(alpha · op(A) · op(B) + beta · C + bias) for each matrix of a batch, straight from memory:
// the kernel for devices whose workgroup memory is memory like any other, such as CPUs that pose as a GPU.
//
// Each invocation makes 8 × 16 results: a load takes such devices as long as several products. With VEC, the
// starts, leading dimensions, batch strides and extents along memory of A and B are multiples of 4. Both are
// read as vectors then, in tiles that are whole; else element by element.
//
// needs: TA, TB, TC, VEC, TRANS_A, TRANS_B, ACTIVATION, lib/matmul

const ACROSS: u32 = 8u;
const DOWN: u32 = 4u;

// Where four elements at k lie from a matrix's first: those of op(A) from a row on, those of op(B) from a
// column on. Beyond the last row or column they are others of the matrix: what becomes of them is not
// written.
fn places(across: u32, extent: u32, k: u32, ld: u32, mn_major: bool) -> vec4<u32> {
  let four = min(vec4<u32>(across, across + 1u, across + 2u, across + 3u), vec4<u32>(extent - 1u));
  return select(four * ld + k, k * ld + four, mn_major);
}

// A block of op(A) or op(B) at a vector: one column of the matrix for each k.
fn block_a(i: u32, ld: u32) -> mat4x4<f32> {
  let stored = mat4x4<f32>(
    vec4<f32>(a4[i]),
    vec4<f32>(a4[i + ld]),
    vec4<f32>(a4[i + 2u * ld]),
    vec4<f32>(a4[i + 3u * ld]),
  );
  if TRANS_A == 1u {
    return stored;
  }
  return transpose(stored);
}

fn block_b(i: u32, ld: u32) -> mat4x4<f32> {
  let stored = mat4x4<f32>(
    vec4<f32>(b4[i]),
    vec4<f32>(b4[i + ld]),
    vec4<f32>(b4[i + 2u * ld]),
    vec4<f32>(b4[i + 3u * ld]),
  );
  if TRANS_B == 1u {
    return transpose(stored);
  }
  return stored;
}

// Sixteen results of each of four rows. They have names: in an array, software drivers keep them in memory.
struct Sums {
  a0: vec4<f32>, b0: vec4<f32>, c0: vec4<f32>, d0: vec4<f32>,
  a1: vec4<f32>, b1: vec4<f32>, c1: vec4<f32>, d1: vec4<f32>,
  a2: vec4<f32>, b2: vec4<f32>, c2: vec4<f32>, d2: vec4<f32>,
  a3: vec4<f32>, b3: vec4<f32>, c3: vec4<f32>, d3: vec4<f32>,
}

// Sixteen elements of a row of op(B).
struct Row {
  a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>,
}

// Adds the products of four elements of a column of op(A) and a row of op(B).
fn added(s: Sums, x: vec4<f32>, y: Row) -> Sums {
  return Sums(
    s.a0 + y.a * x.x, s.b0 + y.b * x.x, s.c0 + y.c * x.x, s.d0 + y.d * x.x,
    s.a1 + y.a * x.y, s.b1 + y.b * x.y, s.c1 + y.c * x.y, s.d1 + y.d * x.y,
    s.a2 + y.a * x.z, s.b2 + y.b * x.z, s.c2 + y.c * x.z, s.d2 + y.d * x.z,
    s.a3 + y.a * x.w, s.b3 + y.b * x.w, s.c3 + y.c * x.w, s.d3 + y.d * x.w,
  );
}

// Four elements of op(A) from a row on, at k.
fn column_a(matrix: u32, row: u32, k: u32) -> vec4<f32> {
  let at = params.a_offset + matrix * params.a_batch + places(row, params.m, k, params.a_ld, TRANS_A == 1u);
  return vec4<f32>(f32(a[at.x]), f32(a[at.y]), f32(a[at.z]), f32(a[at.w]));
}

// Four elements of op(B) from a column on, at k.
fn row_b(matrix: u32, column: u32, k: u32) -> vec4<f32> {
  let at = params.b_offset + matrix * params.b_batch + places(column, params.n, k, params.b_ld, TRANS_B == 0u);
  return vec4<f32>(f32(b[at.x]), f32(b[at.y]), f32(b[at.z]), f32(b[at.w]));
}

// Writes a block of sums, in a loop: what becomes of a sum is too much text to be repeated for each.
fn write_rows(matrix: u32, row: u32, column: u32, s: Sums) {
  for (var i = 0u; i < 16u; i++) {
    var sum: vec4<f32>;
    switch i {
      case 0u: { sum = s.a0; }
      case 1u: { sum = s.b0; }
      case 2u: { sum = s.c0; }
      case 3u: { sum = s.d0; }
      case 4u: { sum = s.a1; }
      case 5u: { sum = s.b1; }
      case 6u: { sum = s.c1; }
      case 7u: { sum = s.d1; }
      case 8u: { sum = s.a2; }
      case 9u: { sum = s.b2; }
      case 10u: { sum = s.c2; }
      case 11u: { sum = s.d2; }
      case 12u: { sum = s.a3; }
      case 13u: { sum = s.b3; }
      case 14u: { sum = s.c3; }
      default: { sum = s.d3; }
    }
    write_four(matrix, row + i / 4u, column + i % 4u * 4u, sum);
  }
}

@compute @workgroup_size(ACROSS * DOWN)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) index: u32) {
  let flat = flat_group(workgroup.id, workgroup.count);
  if flat >= params.tiles {
    return;
  }
  let place = tile_place(flat);
  let origin = place.xy * vec2<u32>(8u * DOWN, 16u * ACROSS);
  let row = origin.x + index / ACROSS * 8u;
  let column = origin.y + index % ACROSS * 16u;
  let matrix = place.z;
  let end = depth(matrix);
  // Uniform in the workgroup: software drivers make loads one by one in loops that end earlier for some
  // invocations.
  let is_whole = origin.x + 8u * DOWN <= params.m && origin.y + 16u * ACROSS <= params.n;
  let whole = select(0u, end - end % 4u, VEC == 1u && is_whole);
  var upper: Sums;
  var lower: Sums;
  let a_ld = params.a_ld / 4u;
  let b_ld = params.b_ld / 4u;
  // To the next block along k, and across.
  let a_step = select(1u, 4u * a_ld, TRANS_A == 1u);
  let b_step = select(4u * b_ld, 1u, TRANS_B == 1u);
  let a_next = select(4u * a_ld, 1u, TRANS_A == 1u);
  let b_next = select(1u, 4u * b_ld, TRANS_B == 1u);
  var i = (params.a_offset + matrix * params.a_batch) / 4u + select(row * a_ld, row / 4u, TRANS_A == 1u);
  var j = (params.b_offset + matrix * params.b_batch) / 4u + select(column / 4u, column * b_ld, TRANS_B == 1u);
  for (var k = 0u; k < whole; k += 4u) {
    let y0 = block_b(j, b_ld);
    let y1 = block_b(j + b_next, b_ld);
    let y2 = block_b(j + 2u * b_next, b_ld);
    let y3 = block_b(j + 3u * b_next, b_ld);
    // One after the other, so that what is under way fits in registers.
    let x0 = block_a(i, a_ld);
    upper = added(upper, x0[0], Row(y0[0], y1[0], y2[0], y3[0]));
    upper = added(upper, x0[1], Row(y0[1], y1[1], y2[1], y3[1]));
    upper = added(upper, x0[2], Row(y0[2], y1[2], y2[2], y3[2]));
    upper = added(upper, x0[3], Row(y0[3], y1[3], y2[3], y3[3]));
    let x1 = block_a(i + a_next, a_ld);
    lower = added(lower, x1[0], Row(y0[0], y1[0], y2[0], y3[0]));
    lower = added(lower, x1[1], Row(y0[1], y1[1], y2[1], y3[1]));
    lower = added(lower, x1[2], Row(y0[2], y1[2], y2[2], y3[2]));
    lower = added(lower, x1[3], Row(y0[3], y1[3], y2[3], y3[3]));
    i += a_step;
    j += b_step;
  }
  for (var k = whole; k < end; k++) {
    let y = Row(
      row_b(matrix, column, k),
      row_b(matrix, column + 4u, k),
      row_b(matrix, column + 8u, k),
      row_b(matrix, column + 12u, k),
    );
    upper = added(upper, column_a(matrix, row, k), y);
    lower = added(lower, column_a(matrix, row + 4u, k), y);
  }
  write_rows(matrix, row, column, upper);
  write_rows(matrix, row + 4u, column, lower);
}
