// The `k` largest or smallest numbers of rows of at most MOST, in order: a number's place is how many others come before it. With
// SOFTMAX, values are exp(x − m) / Σ exp(x − m) with m = max x, of what is found (1) or of all of the row (2).
//
// needs: X, SOFTMAX, a lib/sort_from_*, lib/exp_below, lib/special

const THREADS: u32 = 256u;
const MOST: u32 = 512u;
// Numbers of an invocation.
const TURNS: u32 = MOST / THREADS;

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

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let row = flat_group(workgroup.id, workgroup.count);
  if row >= params.rows {
    return;
  }
  let first = row * params.columns;
  for (var column = lane; column < params.columns; column += THREADS) {
    keys[column] = load(params.x, first + column, column).x;
  }
  workgroupBarrier();
  var places: array<u32, TURNS>;
  for (var turn = 0u; turn < TURNS; turn++) {
    let column = lane + turn * THREADS;
    // Behind every number.
    places[turn] = params.columns;
    if column < params.columns {
      places[turn] = place_of(column);
      if SOFTMAX > 0u && places[turn] == params.largest {
        largest = f32(x[params.x + first + column]);
      }
    }
  }
  if SOFTMAX > 0u {
    workgroupBarrier();
    for (var turn = 0u; turn < TURNS; turn++) {
      let column = lane + turn * THREADS;
      let place = places[turn];
      if place < select(params.columns, params.k, SOFTMAX == 1u) {
        terms[select(column, place, SOFTMAX == 1u)] = exp_below(f32(x[params.x + first + column]), largest);
      }
    }
    workgroupBarrier();
  }
  for (var turn = 0u; turn < TURNS; turn++) {
    let column = lane + turn * THREADS;
    let place = places[turn];
    if place < params.k {
      if (params.writes & 1u) != 0u {
        indices[params.indices + row * params.k + place] = column;
      }
      if (params.writes & 2u) != 0u {
        let number = x[params.x + first + column];
        let at = params.values + row * params.k + place;
        if SOFTMAX > 0u {
          values[at] = X(probability(f32(number)));
        } else {
          values[at] = number;
        }
      }
    }
  }
}
