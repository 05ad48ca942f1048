// The states of a reduction that reads numbers.
//
// needs: the lanes of a vector, the rule of a reduction

// The state of each number of a vector. `index` is the first one's among all that are reduced, and `step` the
// difference to the next.
fn states(v: V, index: u32, step: u32) -> array<State, WIDTH> {
  let numbers = unpack(v);
  var result: array<State, WIDTH>;
  for (var l = 0u; l < WIDTH; l++) {
    result[l] = take(numbers[l], index + l * step);
  }
  return result;
}
