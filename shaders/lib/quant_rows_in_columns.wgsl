// Sums of quant/skinny_cooperative where each column of a fragment is a row of A.
//
// needs: ROWS (8, 16 or 32), SUBGROUP, shares() (subgroups that share k), COLUMNS, PERSISTENT, HALF_BLOCKS, RAGGED (whether rows end
// within a unit), sh, params, lib/fragment_elements, a format's scales, its lib/quant_fragments_* and the order of its quants
// (lib/quant_in_order or of lib/quant_fragments_eight), rows of A (lib/quant_rows or lib/quant_rows_normed), Place,
// rows_of_a, rows_of_b

const_assert ROWS == 8u || ROWS == 16u || ROWS == 32u;

// Of two rows of B that lie eight apart, by up to 16 rows of A, and by the next 16 where a tile has 32.
struct ProductSums {
  first: Elements,
  second: Elements,
}

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

// The vector `i` of eight elements of a row of A, zeros beyond its end.
fn vector_of_row(row: u32, i: u32) -> vec4<u32> {
  if RAGGED == 0u {
    return eight_of_row(row, i);
  }
  let last = params.k / 8u - 1u;
  return select(eight_of_row(row, min(i, last)), vec4<u32>(), i > last);
}

// The vectors of a row of A, from `i` on, that belong to a unit. They come with the unit's weights where there is one row
// for an invocation: waiting for A by itself took up to 7 % of a product's time. Workgroup memory needs no fetching ahead.
fn fetch_row(row: u32, i: u32) -> FetchedRow {
  if ROWS_STAGED || ROWS >= 16u {
    return FetchedRow();
  }
  return FetchedRow(
    vector_of_row(row, i),
    vector_of_row(row, i + 4u),
    vector_of_row(row, i + 8u),
    vector_of_row(row, i + 12u),
  );
}

fn eight_of_fetched_row(fetched: vec4<u32>, row: u32, i: u32) -> vec4<u32> {
  if ROWS_STAGED || ROWS >= 16u {
    return vector_of_row(row, i);
  }
  return fetched;
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
  return Columns(low, in_order_of_quants(vector_of_row(rows.y, i)));
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

// Sums of A's words, of which minima are subtracted as often.
fn sums_of_words(columns: Columns) -> Elements {
  let ones = Halves(vec4<f16>(1.0h), vec4<f16>(1.0h));
  return products(ones, ones, columns);
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

// The weights of a block of two rows of B as numbers, and their scales.
struct BlockOfB {
  first: Halves,
  last: Halves,
  low: Scale,
  high: Scale,
}

fn block_of_b(pair: Pair, block: u32, j: u32) -> BlockOfB {
  let low = scale_of(pair.low_scales, block, j);
  let high = scale_of(pair.high_scales, block, j);
  return BlockOfB(
    Halves(first_in_order(pair.low, block, low.zero), first_in_order(pair.high, block, high.zero)),
    Halves(last_in_order(pair.low, block, low.zero), last_in_order(pair.high, block, high.zero)),
    low,
    high,
  );
}

// Adds the products of a block with columns of A.
fn add_columns(sums: Elements, pair: Pair, b: BlockOfB, columns: Columns, block: u32, j: u32) -> Elements {
  if HALF_BLOCKS == 1u {
    // The invocations 0 and 1 of a row have the words of the first half.
    let half = products(b.first, b.last, keep(columns, j < 2u));
    let other = products(b.first, b.last, keep(columns, j >= 2u));
    let low_0 = scale_of(pair.low_scales, block, 0u);
    let high_0 = scale_of(pair.high_scales, block, 0u);
    let low_1 = scale_of(pair.low_scales, block, 2u);
    let high_1 = scale_of(pair.high_scales, block, 2u);
    let scaled = added(added(sums, half, low_0.scale, high_0.scale), other, low_1.scale, high_1.scale);
    if HAS_MIN {
      let half_of_a = sums_of_words(keep(columns, j < 2u));
      let other_of_a = sums_of_words(keep(columns, j >= 2u));
      return added(added(scaled, half_of_a, -low_0.min, -high_0.min), other_of_a, -low_1.min, -high_1.min);
    }
    return scaled;
  }
  let scaled = added(sums, products(b.first, b.last, columns), b.low.scale, b.high.scale);
  if HAS_MIN {
    return added(scaled, sums_of_words(columns), -b.low.min, -b.high.min);
  }
  return scaled;
}

// Rows of A of which an invocation loads elements: two that lie eight apart, and in tiles of 32 rows those 16 further.
struct Rows {
  first: vec2<u32>,
  second: vec2<u32>,
}

fn add_block(
  sums: ProductSums,
  pair: Pair,
  fetched: vec4<u32>,
  block: u32,
  j: u32,
  rows: Rows,
  unit: u32,
) -> ProductSums {
  // The scales of blocks beyond the row's end may be infinite.
  if RAGGED == 1u && 32u * (4u * unit + block) >= params.k {
    return sums;
  }
  let i = 16u * unit + 4u * block + j;
  // A's loads come before the arithmetic for B, behind which the driver would leave them.
  let first = columns_of_a(fetched, rows.first, i);
  if ROWS < 32u {
    return ProductSums(add_columns(sums.first, pair, block_of_b(pair, block, j), first, block, j), Elements());
  }
  let second = columns_of_a(fetched, rows.second, i);
  let b = block_of_b(pair, block, j);
  return ProductSums(
    add_columns(sums.first, pair, b, first, block, j),
    add_columns(sums.second, pair, b, second, block, j),
  );
}

fn add_unit(sums: ProductSums, pair: Pair, j: u32, rows: Rows, unit: u32) -> ProductSums {
  let one = add_block(sums, pair, pair.row.first, 0u, j, rows, unit);
  let two = add_block(one, pair, pair.row.second, 1u, j, rows, unit);
  let three = add_block(two, pair, pair.row.third, 2u, j, rows, unit);
  return add_block(three, pair, pair.row.fourth, 3u, j, rows, unit);
}

// The sums of an invocation for the tile at `place`.
fn multiply(place: Place, index: u32, held: HeldRows) -> ProductSums {
  let share = index / SUBGROUP % shares();
  let j = index % 4u;
  let line = index % SUBGROUP / 4u;
  let columns = rows_of_b(place, line);
  var rows = Rows(rows_of_a(place, line), vec2<u32>());
  if ROWS == 32u {
    rows.second = rows_of_a(place, line + 16u);
  }
  let last = params.units - 1u;
  // With eight rows of A, the first unit is on its way while they are prepared; with more, none is.
  var now = fetch(columns, rows.first.x, min(share, last), j);
  if PERSISTENT == 0u {
    prepare_rows(index, held);
  }
  var sums: ProductSums;
  var unit = share;
  if ROWS >= 16u {
    // Faster than with the next unit on its way, mostly (shaders/quant/notes.md).
    for (; unit < params.units; unit += shares()) {
      sums = add_unit(sums, fetch(columns, rows.first.x, unit, j), j, rows, unit);
    }
    return sums;
  }
  // A unit is multiplied while the next is on its way. With rows in workgroup memory, nothing is fetched behind the last
  // unit. Without, a second copy of the products costs more than that saves.
  let ahead = select(0u, shares(), ROWS_STAGED);
  for (; unit + ahead < params.units; unit += shares()) {
    let next = fetch(columns, rows.first.x, min(unit + shares(), last), j);
    sums = add_unit(sums, now, j, rows, unit);
    now = next;
  }
  if ROWS_STAGED && unit < params.units {
    return add_unit(sums, now, j, rows, unit);
  }
  return sums;
}

// Writes the sums of a row of B.
fn write(start: u32, column: u32, row: u32, numbers: vec4<f32>) {
  let at = start + row * COLUMNS + column;
  sh[at] = numbers.x;
  sh[at + COLUMNS] = numbers.y;
  if ROWS >= 16u {
    sh[at + 8u * COLUMNS] = numbers.z;
    sh[at + 9u * COLUMNS] = numbers.w;
  }
}

// Writes what an invocation has to its subgroup's part of `sh`.
fn put_sums(index: u32, sums: ProductSums) {
  let start = index / SUBGROUP * ROWS * COLUMNS;
  let j = index % 4u;
  let line = index % SUBGROUP / 4u;
  write(start, line, 2u * j, sums.first.low);
  write(start, line + 8u, 2u * j, sums.first.high);
  if ROWS == 32u {
    write(start, line, 16u + 2u * j, sums.second.low);
    write(start, line + 8u, 16u + 2u * j, sums.second.high);
  }
}
