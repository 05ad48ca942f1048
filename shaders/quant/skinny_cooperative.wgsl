// C = residual + activation(alpha · A · Bᵀ + bias) for few rows of f16 of A and a quantised B, multiplied by the
// device's tensor cores, which add in f32: what takes the time is reading B once. With GATED, the first half of
// B's rows gives P₁, the second P₂, and C = residual + activation(P₁) · P₂.
//
// A workgroup makes ROWS rows and COLUMNS columns of the product, half of which are gates with GATED. Its SUBGROUPS
// subgroups share k, and add their parts at the end. Rows of B are the left operand, so that an invocation has sums of
// the rows whose scales it reads: quants are exact in f16, and scales are applied to the sums of blocks, in f32.
//
// Operands go from memory straight into fragments. An invocation has the word j of each block of its rows and
// the same columns of A. These are of other k than a fragment's elements, but it is the same change of order
// for both operands, so that the sums are the same.
//
// Rows of A start at multiples of eight elements, and k is whole units. Beyond the last row of either operand,
// another one's products are made, but not written.
//
// With PERSISTENT, a workgroup makes tile after tile, so that it prepares the rows once.
//
// needs: TA = f16, TC, SUBGROUPS, ROWS, PERSISTENT, HALF_BLOCKS, ACTIVATION, GATED, GATE, lib/quant_product, where elements
// of the product go (lib/quant_results or lib/quant_results_appended), lib/fragment_elements, a format's scales, its
// lib/quant_fragments_* and the order of its quants (lib/quant_in_order or of lib/quant_fragments_q8_0), rows of A
// (lib/quant_rows or lib/quant_rows_normed)

const SUBGROUP: u32 = 32u;
const THREADS: u32 = SUBGROUPS * SUBGROUP;
const COLUMNS: u32 = 16u;
// Columns of C.
const RESULTS: u32 = COLUMNS >> GATED;

// The sums of each subgroup, row by row of C.
var<workgroup> sh: array<f32, SUBGROUPS * ROWS * COLUMNS>;

const_assert ROWS == 8u || ROWS == 16u;
const_assert ROWS * RESULTS <= THREADS;

// Eight elements of a row of A for each block of a unit, as far as they are fetched ahead.
struct FetchedRow {
  first: vec4<u32>,
  second: vec4<u32>,
  third: vec4<u32>,
  fourth: vec4<u32>,
}

// A unit of two rows of B that lie eight apart, or are a gate's and the one that it opens, and what is fetched with it
// of a row of A.
struct Pair {
  low: Quants,
  high: Quants,
  low_scales: Scales,
  high_scales: Scales,
  row: FetchedRow,
}

// The unit of two rows of B and of a row of A.
fn fetch(columns: vec2<u32>, row: u32, unit: u32, j: u32) -> Pair {
  return Pair(
    load_quants(columns.x, unit, j),
    load_quants(columns.y, unit, j),
    load_scales(columns.x, unit),
    load_scales(columns.y, unit),
    fetch_row(row, 16u * unit + j),
  );
}

// The columns of A that an invocation multiplies with its word of a block, of two rows that lie eight apart.
struct Columns {
  low: vec4<u32>,
  high: vec4<u32>,
}

fn columns_of_a(fetched: vec4<u32>, rows: vec2<u32>, i: u32) -> Columns {
  let low = in_order_of_quants(eight_of_fetched_row(fetched, rows.x, i));
  if ROWS == 8u {
    return Columns(low, low);
  }
  return Columns(low, in_order_of_quants(eight_of_row(rows.y, i)));
}

fn keep(columns: Columns, kept: bool) -> Columns {
  return Columns(select(vec4<u32>(), columns.low, kept), select(vec4<u32>(), columns.high, kept));
}

// The sums of products of words of two rows of B with A.
fn products(first: Halves, last: Halves, columns: Columns) -> Elements {
  let a_first = right_operand_of(elements_of(columns.low.xy, columns.high.xy));
  let some = coopMultiplyAdd(left_operand_of(first), a_first, Sums());
  let a_last = right_operand_of(elements_of(columns.low.zw, columns.high.zw));
  return elements(coopMultiplyAdd(left_operand_of(last), a_last, some));
}

// Adds products with a factor for each of the two rows.
fn added(sums: Elements, by: Elements, low: f32, high: f32) -> Elements {
  if ROWS == 8u {
    // The columns eight further on are the same rows of A again.
    return Elements(
      vec4<f32>(sums.low.xy + low * by.low.xy, 0.0, 0.0),
      vec4<f32>(sums.high.xy + high * by.high.xy, 0.0, 0.0),
    );
  }
  return Elements(sums.low + low * by.low, sums.high + high * by.high);
}

fn add_block(
  sums: Elements,
  pair: Pair,
  fetched: vec4<u32>,
  block: u32,
  j: u32,
  rows: vec2<u32>,
  unit: u32,
) -> Elements {
  let columns = columns_of_a(fetched, rows, 16u * unit + 4u * block + j);
  let low = scale_of(pair.low_scales, block, j);
  let high = scale_of(pair.high_scales, block, j);
  let first = Halves(first_in_order(pair.low, block, low.zero), first_in_order(pair.high, block, high.zero));
  let last = Halves(last_in_order(pair.low, block, low.zero), last_in_order(pair.high, block, high.zero));
  if HALF_BLOCKS == 1u {
    // The invocations 0 and 1 of a row have the words of the first half.
    let half = products(first, last, keep(columns, j < 2u));
    let other = products(first, last, keep(columns, j >= 2u));
    let low_0 = scale_of(pair.low_scales, block, 0u).scale;
    let high_0 = scale_of(pair.high_scales, block, 0u).scale;
    let low_1 = scale_of(pair.low_scales, block, 2u).scale;
    let high_1 = scale_of(pair.high_scales, block, 2u).scale;
    return added(added(sums, half, low_0, high_0), other, low_1, high_1);
  }
  let scaled = added(sums, products(first, last, columns), low.scale, high.scale);
  if HAS_MIN {
    let ones = Halves(vec4<f16>(1.0h), vec4<f16>(1.0h));
    return added(scaled, products(ones, ones, columns), -low.min, -high.min);
  }
  return scaled;
}

fn add_unit(sums: Elements, pair: Pair, j: u32, rows: vec2<u32>, unit: u32) -> Elements {
  let one = add_block(sums, pair, pair.row.first, 0u, j, rows, unit);
  let two = add_block(one, pair, pair.row.second, 1u, j, rows, unit);
  let three = add_block(two, pair, pair.row.third, 2u, j, rows, unit);
  return add_block(three, pair, pair.row.fourth, 3u, j, rows, unit);
}

// Writes the sums of a row of B.
fn write(start: u32, column: u32, row: u32, numbers: vec4<f32>) {
  let at = start + row * COLUMNS + column;
  sh[at] = numbers.x;
  sh[at + COLUMNS] = numbers.y;
  if ROWS == 16u {
    sh[at + 8u * COLUMNS] = numbers.z;
    sh[at + 9u * COLUMNS] = numbers.w;
  }
}

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
  return Place(tile / params.tiles_n * ROWS, tile % params.tiles_n * RESULTS);
}

// The sums of an invocation for the tile at `place`.
fn multiply(place: Place, index: u32, held: HeldRows) -> Elements {
  let subgroup = index / SUBGROUP;
  let j = index % 4u;
  let line = index % SUBGROUP / 4u;
  let pair = vec2<u32>(line, line + 8u);
  var columns = min(place.column + pair, vec2<u32>(params.n - 1u));
  if GATED == 1u {
    columns.y = columns.x + params.half;
  }
  let rows = min(place.row + pair, vec2<u32>(params.m - 1u));
  let last = params.units - 1u;
  // A unit is multiplied while the next is on its way, and the first while rows are prepared.
  var now = fetch(columns, rows.x, min(subgroup, last), j);
  if PERSISTENT == 0u {
    prepare_rows(index, held);
  }
  var sums: Elements;
  var unit = subgroup;
  // With rows in workgroup memory, nothing is fetched behind the last unit. Without, a second copy of the products costs
  // more than that saves.
  let ahead = select(0u, SUBGROUPS, ROWS_STAGED);
  for (; unit + ahead < params.units; unit += SUBGROUPS) {
    let next = fetch(columns, rows.x, min(unit + SUBGROUPS, last), j);
    sums = add_unit(sums, now, j, rows, unit);
    now = next;
  }
  if ROWS_STAGED && unit < params.units {
    return add_unit(sums, now, j, rows, unit);
  }
  return sums;
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

// Adds up what the subgroups have of a tile, and writes it.
fn finish_tile(place: Place, index: u32, sums: Elements, ahead: Ahead) {
  let start = index / SUBGROUP * ROWS * COLUMNS;
  let j = index % 4u;
  let line = index % SUBGROUP / 4u;
  write(start, line, 2u * j, sums.low);
  write(start, line + 8u, 2u * j, sums.high);
  workgroupBarrier();
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
    finish_tile(place, index, multiply(place, index, held), ahead);
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
