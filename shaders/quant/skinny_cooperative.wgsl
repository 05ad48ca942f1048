// C = residual + activation(alpha · A · Bᵀ + bias) for few rows of A, of f16 or rounded to it, and a quantised B,
// multiplied by the device's tensor cores, which add in f32: what takes the time is reading B once. With GATED, the
// first half of B's rows gives P₁, the second P₂, and C = residual + activation(P₁) · P₂.
//
// A workgroup makes ROWS rows and COLUMNS columns of the product, half of which are gates with GATED. Its SUBGROUPS
// subgroups share k, and add their parts at the end. Rows of B are the left operand, so that an invocation has sums of
// the rows whose scales it reads: quants are exact in f16, and scales are applied to the sums of blocks, in f32.
//
// Operands go from memory straight into fragments. An invocation has the word j of each block of its rows and
// the same columns of A. These are of other k than a fragment's elements, but it is the same change of order
// for both operands, so that the sums are the same. The columns of a right operand are rows of A, or blocks of one row.
//
// Rows of A start at multiples of 16 bytes, and k is whole blocks, or whole units with HALF_BLOCKS. Beyond the last row of
// either operand, another one's products are made, but not written.
//
// With PERSISTENT, a workgroup makes tile after tile, so that it prepares the rows once.
//
// needs: TA = f16, or f32 with lib/quant_normed_f32, TC, SUBGROUPS, ROWS, PERSISTENT, HALF_BLOCKS, RAGGED, ACTIVATION, GATED,
// GATE, lib/quant_product, where elements of the product go (lib/quant_results, lib/quant_results_appended or
// lib/quant_results_qk_norm), lib/fragment_elements, a format's scales, its lib/quant_fragments_* and the order of its
// quants (lib/quant_in_order or of lib/quant_fragments_eight), rows of A (lib/quant_rows or lib/quant_rows_normed) and
// what columns are (lib/quant_rows_in_columns or lib/quant_blocks_in_columns)

const SUBGROUP: u32 = 32u;
const THREADS: u32 = SUBGROUPS * SUBGROUP;
const COLUMNS: u32 = 16u;
// Columns of C.
const RESULTS: u32 = COLUMNS >> GATED;

// The sums of each subgroup, row by row of C.
var<workgroup> sh: array<f32, SUBGROUPS * ROWS * COLUMNS>;

fn sum_of_subgroups(at: u32) -> f32 {
  var sum = 0.0;
  for (var s = 0u; s < SUBGROUPS; s++) {
    sum += sh[s * ROWS * COLUMNS + at];
  }
  return sum;
}

// Where a tile lies in C.
struct Place {
  row: u32,
  column: u32,
}

fn place_of(tile: u32) -> Place {
  if ROWS == 1u {
    // A has no other row.
    return Place(0u, tile * RESULTS);
  }
  // Tiles of the same columns follow each other, so that B comes from memory once.
  let tiles_m = params.tiles / params.tiles_n;
  return Place(tile % tiles_m * ROWS, tile / tiles_m * RESULTS);
}

// All subgroups share k.
fn shares() -> u32 {
  return SUBGROUPS;
}

// The rows of A of the invocations of a line of fragments.
fn rows_of_a(place: Place, line: u32) -> vec2<u32> {
  if ROWS == 1u {
    return vec2<u32>();
  }
  return min(place.row + vec2<u32>(line, line + 8u), vec2<u32>(params.m - 1u));
}

// The rows of B of the invocations of a line of fragments: they lie eight apart, or are a gate's and the one that it opens.
fn rows_of_b(place: Place, line: u32) -> vec2<u32> {
  let rows = min(place.column + vec2<u32>(line, line + 8u), vec2<u32>(params.n - 1u));
  if GATED == 1u {
    return vec2<u32>(rows.x, rows.x + params.half);
  }
  return rows;
}

// What the element that an invocation writes needs besides the product; gates read it by themselves.
fn ahead_of(place: Place, index: u32) -> Ahead {
  let row = place.row + index / RESULTS;
  let column = place.column + index % RESULTS;
  if GATED == 1u || index >= ROWS * RESULTS || row >= params.m || column >= params.n {
    return Ahead();
  }
  return read_ahead(row, column);
}

// Writes the result `index` of a tile, of which the subgroups' sums are in workgroup memory.
fn write_result(place: Place, index: u32, ahead: Ahead) {
  let row = place.row + index / RESULTS;
  let column = place.column + index % RESULTS;
  if index >= ROWS * RESULTS || row >= params.m || column >= params.n {
    return;
  }
  let at = index / RESULTS * COLUMNS + index % RESULTS;
  let sum = sum_of_subgroups(at);
  if GATED == 1u {
    let opened = biased(sum_of_subgroups(at + RESULTS), column + params.half);
    store(glu(GATE, biased(sum, column), opened), row, column);
  } else {
    var neighbour = 0.0;
    if PAIRED {
      neighbour = sum_of_subgroups(at ^ 1u);
    }
    finish_element(sum, neighbour, ahead, row, column);
  }
}

// Adds up what the subgroups have of a tile, and writes it.
fn finish_tile(place: Place, index: u32, sums: ProductSums, ahead: Ahead) {
  put_sums(index, sums);
  workgroupBarrier();
  if ROWS * RESULTS <= THREADS {
    write_result(place, index, ahead);
    return;
  }
  for (var i = index; i < ROWS * RESULTS; i += THREADS) {
    write_result(place, i, ahead_of(place, i));
  }
}

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) index: u32) {
  let first = flat_group(workgroup.id, workgroup.count);
  if first >= params.tiles {
    return;
  }
  let held = load_rows(index);
  if PERSISTENT == 0u {
    let place = place_of(first);
    // On its way while the product is made.
    let ahead = ahead_of(place, index);
    let head_ahead = read_head_ahead(place.column, index);
    finish_tile(place, index, multiply(place, index, held), ahead);
    finish_workgroup(place.column, RESULTS, index, THREADS, head_ahead);
    return;
  }
  prepare_rows(index, held);
  for (var tile = first; tile < params.tiles; tile += workgroup.count.x * workgroup.count.y) {
    let place = place_of(tile);
    let sums = multiply(place, index, held);
    // The sums of the tile before have been read.
    workgroupBarrier();
    finish_tile(place, index, sums, ahead_of(place, index));
  }
}
