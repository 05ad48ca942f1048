// Sums of quant/skinny_cooperative for one row of A, where each column of a fragment is a block of that row.
//
// Column c of a right operand has the elements of the row's block c, of eight blocks, which one load of A brings; with
// HALF_BLOCKS, those of half c % 2 of block c / 2, of four, and zeros for the other half. Of its product with that block
// of rows of B, only column c belongs to the result. An invocation has the columns 2j and 2j + 1 of its rows of B, so that
// it scales two blocks, where one row in all columns would have it scale all eight.
//
// needs: ROWS = 1, SUBGROUP, shares() (subgroups that share k), COLUMNS, PERSISTENT, HALF_BLOCKS, sh, params,
// lib/fragment_elements, a format's scales, all of one zero point, its lib/quant_fragments_* and the order of its quants
// (lib/quant_in_order or of lib/quant_fragments_eight), rows of A (lib/quant_rows or lib/quant_rows_normed), Place,
// rows_of_a, rows_of_b

const_assert ROWS == 1u;

// Units that have eight blocks, or as many half blocks.
const UNITS: u32 = 2u >> HALF_BLOCKS;

// Of two rows of B.
alias ProductSums = vec2<f32>;

// A unit of two rows of B.
struct Pair {
  low: Quants,
  high: Quants,
}

// Eight blocks of two rows of B, and the scales of the unit whose blocks are an invocation's columns.
struct Step {
  first: Pair,
  second: Pair,
  low_scales: Scales,
  high_scales: Scales,
}

// Of two rows of B, what belongs to the columns of an invocation.
struct Columns {
  low: vec2<f32>,
  high: vec2<f32>,
}

fn fetch_pair(rows: vec2<u32>, unit: u32, j: u32) -> Pair {
  return Pair(load_quants(rows.x, unit, j), load_quants(rows.y, unit, j));
}

// Eight blocks of two units, or one unit's half blocks, and the scales of unit `scaled`.
fn fetch(rows: vec2<u32>, units: vec2<u32>, scaled: u32, j: u32) -> Step {
  let first = fetch_pair(rows, units.x, j);
  var second: Pair;
  if HALF_BLOCKS == 0u {
    second = fetch_pair(rows, units.y, j);
  }
  return Step(first, second, load_scales(rows.x, scaled), load_scales(rows.y, scaled));
}

// The number of the vector of A that an invocation has of a step.
fn vector_of_a(step: u32, lane: u32) -> u32 {
  return select(32u * step + lane, 16u * step + lane / 8u * 4u + lane % 4u, HALF_BLOCKS == 1u);
}

// The word j of a column of A. A half block has the words 0 and 1 of its block, or 2 and 3, and zeros for the others.
fn word_of_a(row: u32, i: u32, lane: u32) -> vec4<u32> {
  let word = in_order_of_quants(eight_of_row(row, i));
  return select(word, vec4<u32>(), HALF_BLOCKS == 1u && lane / 4u % 2u != lane % 4u / 2u);
}

// Products of all columns of A with elements of two rows of B.
fn products(first: Halves, last: Halves, a: vec4<u32>) -> Elements {
  // The columns eight further on are the same ones again.
  let some = coopMultiplyAdd(left_operand_of(first), right_operand_of(elements_of(a.xy, a.xy)), Sums());
  return elements(coopMultiplyAdd(left_operand_of(last), right_operand_of(elements_of(a.zw, a.zw)), some));
}

// Products of all columns of A with a block of two rows of B.
fn products_of_block(pair: Pair, block: u32, zero: f32, a: vec4<u32>) -> Elements {
  let first = Halves(first_in_order(pair.low, block, zero), first_in_order(pair.high, block, zero));
  let last = Halves(last_in_order(pair.low, block, zero), last_in_order(pair.high, block, zero));
  return products(first, last, a);
}

// The even column of some products and the odd one of others.
fn columns_of(even: Elements, odd: Elements) -> Columns {
  return Columns(vec2<f32>(even.low.x, odd.low.y), vec2<f32>(even.high.x, odd.high.y));
}

fn either(columns: Columns, others: Columns, is_other: bool) -> Columns {
  return Columns(select(columns.low, others.low, is_other), select(columns.high, others.high, is_other));
}

// The columns of two blocks.
fn columns_of_blocks(pair: Pair, block: u32, zero: f32, a: vec4<u32>) -> Columns {
  let even = products_of_block(pair, block, zero, a);
  return columns_of(even, products_of_block(pair, block + 1u, zero, a));
}

// The columns of the halves of a block.
fn columns_of_halves(pair: Pair, block: u32, zero: f32, a: vec4<u32>) -> Columns {
  let both = products_of_block(pair, block, zero, a);
  return columns_of(both, both);
}

// The products of an invocation's two blocks, or halves of its block, not scaled. All invocations make all products,
// as fragments demand.
fn own_columns(step: Step, zero: f32, j: u32, a: vec4<u32>) -> Columns {
  if HALF_BLOCKS == 1u {
    let low = either(columns_of_halves(step.first, 0u, zero, a), columns_of_halves(step.first, 1u, zero, a), j == 1u);
    let third = either(low, columns_of_halves(step.first, 2u, zero, a), j == 2u);
    return either(third, columns_of_halves(step.first, 3u, zero, a), j == 3u);
  }
  let low = either(columns_of_blocks(step.first, 0u, zero, a), columns_of_blocks(step.first, 2u, zero, a), j == 1u);
  let third = either(low, columns_of_blocks(step.second, 0u, zero, a), j == 2u);
  return either(third, columns_of_blocks(step.second, 2u, zero, a), j == 3u);
}

// Adds a row's products of an invocation's columns with their scales, less the columns' sums with their minima. Of its blocks, the
// row has `blocks`: the others' scales may be infinite where A is 0.
fn add_scaled(sum: f32, scales: Scales, j: u32, columns: vec2<f32>, sums_of_a: vec2<f32>, blocks: u32) -> f32 {
  let block = select(2u * (j % 2u), j, HALF_BLOCKS == 1u);
  let even = scale_of(scales, block, 0u);
  let odd = scale_of(scales, block + 1u - HALF_BLOCKS, 2u * HALF_BLOCKS);
  let exist = vec2<bool>(blocks > 0u, blocks > 1u);
  let factors = select(vec2<f32>(), vec2<f32>(even.scale, odd.scale), exist);
  let all = sum + factors.x * columns.x + factors.y * columns.y;
  if HAS_MIN {
    let minima = select(vec2<f32>(), vec2<f32>(even.min, odd.min), exist);
    return all - minima.x * sums_of_a.x - minima.y * sums_of_a.y;
  }
  return all;
}

// Adds the products of eight blocks, of which the row has so many of the invocation's two.
fn add_step(sums: vec2<f32>, step: Step, j: u32, a: vec4<u32>, blocks: u32) -> vec2<f32> {
  let columns = own_columns(step, scale_of(step.low_scales, 0u, 0u).zero, j, a);
  var sums_of_a: vec2<f32>;
  if HAS_MIN {
    let ones = Halves(vec4<f16>(1.0h), vec4<f16>(1.0h));
    sums_of_a = products(ones, ones, a).low.xy;
  }
  let low = add_scaled(sums.x, step.low_scales, j, columns.low, sums_of_a, blocks);
  return vec2<f32>(low, add_scaled(sums.y, step.high_scales, j, columns.high, sums_of_a, blocks));
}

// The sums of an invocation for the tile at `place`.
fn multiply(place: Place, index: u32, held: HeldRows) -> ProductSums {
  let lane = index % SUBGROUP;
  let j = lane % 4u;
  let rows = rows_of_b(place, lane / 4u);
  let row_of_a = rows_of_a(place, 0u).x;
  var sums: vec2<f32>;
  // From the last step to the first, so that sums of an iteration are always of columns within the row.
  var step = i32((params.units + UNITS - 1u) / UNITS) - 1 - i32(index / SUBGROUP % shares());
  if HALF_BLOCKS == 0u {
    // The first weights are on their way while rows are prepared. The last unit stands for those beyond it.
    let last = params.units - 1u;
    let unit = UNITS * u32(max(step, 0));
    let own = unit + j / 2u;
    let first = fetch(rows, min(vec2<u32>(unit, unit + 1u), vec2<u32>(last)), min(own, last), j);
    if PERSISTENT == 0u {
      prepare_rows(index, held);
    }
    if step >= 0 {
      let i = vector_of_a(u32(step), lane);
      let last_of_a = params.k / 8u - 1u;
      let a = select(word_of_a(row_of_a, min(i, last_of_a), lane), vec4<u32>(), i > last_of_a);
      let first_block = 4u * own + 2u * (j % 2u);
      sums = add_step(sums, first, j, a, max(params.k / 32u, first_block) - first_block);
    }
    step -= i32(shares());
  } else if PERSISTENT == 0u {
    prepare_rows(index, held);
  }
  for (; step >= 0; step -= i32(shares())) {
    let unit = UNITS * u32(step);
    let scaled = select(unit + j / 2u, unit, HALF_BLOCKS == 1u);
    let weights = fetch(rows, vec2<u32>(unit, unit + 1u), scaled, j);
    sums = add_step(sums, weights, j, word_of_a(row_of_a, vector_of_a(u32(step), lane), lane), 2u);
  }
  return sums;
}

// Writes what invocations have to their subgroup's part of `sh`.
fn put_sums(index: u32, sums: ProductSums) {
  let row = sum_of_rows(sums);
  if index % 4u == 0u {
    let at = index / SUBGROUP * COLUMNS + index % SUBGROUP / 4u;
    sh[at] = row.x;
    sh[at + 8u] = row.y;
  }
}
