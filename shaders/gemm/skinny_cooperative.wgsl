// C = activation(alpha · A · op(B) + beta · C + bias) for each matrix of a batch, where A has few rows, and
// B's rows run along k as A's do: what takes the time is reading B once. Both are of f16, multiplied by the
// device's tensor cores, which add in f32.
//
// A workgroup makes ROWS rows and COLUMNS columns of C. Its SUBGROUPS subgroups share k, and add their parts
// at the end.
//
// Operands go from memory straight into fragments. An invocation reads vectors along k of those rows that it
// has elements of, and takes their numbers for its elements one after the other. These are of other k than the numbers',
// but it is the same change of order for both operands, so that the sums are the same.
//
// The starts, the batch strides, the leading dimensions and k are whole vectors.
//
// With TRANS_C, the product was transposed as a whole, so that few columns became few rows.
//
// needs: T = f16, TC, SUBGROUPS, TRANS_C, ACTIVATION, lib/matmul, lib/fragment_elements, lib/workgroup_tiles

const SUBGROUP: u32 = 32u;
const THREADS: u32 = SUBGROUPS * SUBGROUP;
const FRAGMENT: u32 = 16u;
const ROWS: u32 = FRAGMENT;
const COLUMNS: u32 = 2u * FRAGMENT;

// Elements of a vector, and vectors of a row for a subgroup and for the workgroup.
const WIDTH: u32 = 8u;
const STEP: u32 = 8u;
const K_BLOCK: u32 = SUBGROUPS * STEP;

// The sums of each subgroup, fragment by fragment.
var<workgroup> sh: array<f32, SUBGROUPS * ROWS * COLUMNS>;

// Where an invocation's rows begin: two of A and four of B.
struct Rows {
  a: vec2<u32>,
  b: vec4<u32>,
}

// Two vectors of each of two rows that lie eight apart, those of a fragment.
struct Vectors {
  low: vec4<u32>,
  low_next: vec4<u32>,
  high: vec4<u32>,
  high_next: vec4<u32>,
}

// What an invocation has of both operands.
struct Operands {
  left: Vectors,
  right: Vectors,
  right_next: Vectors,
}

fn rows_of(place: vec3<u32>, row: u32) -> Rows {
  // Beyond the last row, another one's products are made, but not written.
  let row_a = min(place.x * ROWS + row + vec2<u32>(0u, 8u), vec2<u32>(params.m - 1u));
  let row_b = min(place.y * COLUMNS + row + vec4<u32>(0u, 8u, 16u, 24u), vec4<u32>(params.n - 1u));
  return Rows(
    (params.a_offset + place.z * params.a_batch) / WIDTH + row_a * (params.a_ld / WIDTH),
    (params.b_offset + place.z * params.b_batch) / WIDTH + row_b * (params.b_ld / WIDTH),
  );
}

// The vectors `at.x` and `at.y` of each row.
fn fetch(rows: Rows, at: vec2<u32>) -> Operands {
  return Operands(
    Vectors(a[rows.a.x + at.x], a[rows.a.x + at.y], a[rows.a.y + at.x], a[rows.a.y + at.y]),
    Vectors(b[rows.b.x + at.x], b[rows.b.x + at.y], b[rows.b.y + at.x], b[rows.b.y + at.y]),
    Vectors(b[rows.b.z + at.x], b[rows.b.z + at.y], b[rows.b.w + at.x], b[rows.b.w + at.y]),
  );
}

// An operand's vectors, with zeros in place of those that don't exist.
fn keep(v: Vectors, exists: vec2<bool>) -> Vectors {
  let zero = vec4<u32>();
  return Vectors(
    select(zero, v.low, exists.x),
    select(zero, v.low_next, exists.y),
    select(zero, v.high, exists.x),
    select(zero, v.high_next, exists.y),
  );
}

// Adds the products of four fragments of each operand.
fn add_products(left: Vectors, right: Vectors, sums: Sums) -> Sums {
  let a_0 = left_operand_of(elements_of(left.low.xy, left.high.xy));
  let b_0 = right_operand_of(elements_of(right.low.xy, right.high.xy));
  let sum_0 = coopMultiplyAdd(a_0, b_0, sums);
  let a_1 = left_operand_of(elements_of(left.low.zw, left.high.zw));
  let b_1 = right_operand_of(elements_of(right.low.zw, right.high.zw));
  let sum_1 = coopMultiplyAdd(a_1, b_1, sum_0);
  let a_2 = left_operand_of(elements_of(left.low_next.xy, left.high_next.xy));
  let b_2 = right_operand_of(elements_of(right.low_next.xy, right.high_next.xy));
  let sum_2 = coopMultiplyAdd(a_2, b_2, sum_1);
  let a_3 = left_operand_of(elements_of(left.low_next.zw, left.high_next.zw));
  let b_3 = right_operand_of(elements_of(right.low_next.zw, right.high_next.zw));
  return coopMultiplyAdd(a_3, b_3, sum_2);
}

fn make_tile(flat: u32, index: u32) {
  let place = tile_place(flat);
  let subgroup = index / SUBGROUP;
  let lane = index % SUBGROUP;
  let rows = rows_of(place, lane / 4u);
  let end = depth(place.z) / WIDTH;
  let k_blocks = (end + K_BLOCK - 1u) / K_BLOCK;
  let pad = k_blocks * K_BLOCK - end;

  // Neighbours read what is adjacent. The first k-block is filled up with zeros from its beginning.
  let first = subgroup * STEP + lane % 4u + vec2<u32>(0u, 4u);
  let exists = first >= vec2<u32>(pad);
  var operands = fetch(rows, max(first, vec2<u32>(pad)) - pad);
  operands.left = keep(operands.left, exists);
  operands.right = keep(operands.right, exists);
  operands.right_next = keep(operands.right_next, exists);
  var sums = Sums();
  var sums_next = Sums();
  // After the first k-block, each workgroup begins at another place, or all would ask for the same of A at a
  // time.
  var next = flat % max(k_blocks - 1u, 1u);
  for (var k_block = 1u; k_block <= k_blocks; k_block++) {
    sums = add_products(operands.left, operands.right, sums);
    sums_next = add_products(operands.left, operands.right_next, sums_next);
    if k_block < k_blocks {
      operands = fetch(rows, (1u + next) * K_BLOCK + first - pad);
      next = select(next + 1u, 0u, next + 2u == k_blocks);
    }
  }

  let results = subgroup * ROWS * COLUMNS;
  let results_next = results + ROWS * FRAGMENT;
  let left_sums = sums;
  coopStoreT(left_sums, &sh[results], FRAGMENT);
  let right_sums = sums_next;
  coopStoreT(right_sums, &sh[results_next], FRAGMENT);
  workgroupBarrier();
  for (var i = index; i < ROWS * COLUMNS; i += THREADS) {
    var sum = 0.0;
    for (var s = 0u; s < SUBGROUPS; s++) {
      sum += sh[s * ROWS * COLUMNS + i];
    }
    let row = place.x * ROWS + i / FRAGMENT % ROWS;
    let column = place.y * COLUMNS + i / (ROWS * FRAGMENT) * FRAGMENT + i % FRAGMENT;
    if row < params.m && column < params.n {
      let at = params.c_offset
        + place.z * params.c_batch
        + select(row * params.c_ld + column, column * params.c_ld + row, TRANS_C == 1u);
      c[at] = finish(sum, row, column, at);
    }
  }
}
