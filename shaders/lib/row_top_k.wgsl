// The `k` largest or smallest numbers of a row of at most MOST, in order: a number's place is how many others come before it. With
// SOFTMAX, values are exp(x − m) / Σ exp(x − m) with m = max x, of what is found (1) or of all of the row (2).
//
// needs: SOFTMAX, params (columns, k, and largest, the place of the number whose exponential is 1), number_at and write_found
// of a row's columns, lib/exp_below, lib/special

const THREADS: u32 = 256u;
const MOST: u32 = 512u;
// Numbers of an invocation.
const ITEMS_PER_THREAD: u32 = MOST / THREADS;

// The row's numbers as integers in the order of their places.
var<workgroup> keys: array<u32, MOST>;
// Exponentials, in the order of the places or of the row.
var<workgroup> terms: array<f32, MOST>;
var<workgroup> largest: f32;

fn place_of(column: u32) -> u32 {
  let own = keys[column];
  var place = 0u;
  for (var i = 0u; i < params.columns; i++) {
    // Of equal numbers, the one with the lower index comes first.
    place += u32(select(keys[i] < own, keys[i] <= own, i < column));
  }
  return place;
}

// The softmax of a number.
fn probability(number: f32) -> f32 {
  var sum = 0.0;
  let count = select(params.columns, params.k, SOFTMAX == 1u);
  for (var i = 0u; i < count; i++) {
    sum += terms[i];
  }
  let m = largest;
  return select(exp_below(number, m) / sum, nan(), is_nan(m) || is_inf(m));
}

// Writes what is found of a row, by all invocations of a workgroup, behind a barrier after `keys` were written.
fn find(row: u32, lane: u32) {
  var places: array<u32, ITEMS_PER_THREAD>;
  for (var item = 0u; item < ITEMS_PER_THREAD; item++) {
    let column = lane + item * THREADS;
    // Behind every number.
    places[item] = params.columns;
    if column < params.columns {
      places[item] = place_of(column);
      if SOFTMAX > 0u && places[item] == params.largest {
        largest = number_at(row, column);
      }
    }
  }
  if SOFTMAX > 0u {
    workgroupBarrier();
    for (var item = 0u; item < ITEMS_PER_THREAD; item++) {
      let column = lane + item * THREADS;
      let place = places[item];
      if place < select(params.columns, params.k, SOFTMAX == 1u) {
        terms[select(column, place, SOFTMAX == 1u)] = exp_below(number_at(row, column), largest);
      }
    }
    workgroupBarrier();
  }
  for (var item = 0u; item < ITEMS_PER_THREAD; item++) {
    if places[item] < params.k {
      write_found(row, places[item], lane + item * THREADS);
    }
  }
}
