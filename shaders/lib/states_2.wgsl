// Two states side by side, of the halves of a word.
//
// needs: the vec of a vector, the rule of a reduction

alias States = array<State, WIDTH>;
const IN_WORDS = 1u;

fn none() -> States {
  let state = start();
  return States(state, state);
}

// The state of each number of a word. `index` is the first one's among all that are reduced, and `step` the
// difference to the next.
fn states(v: V, index: u32, step: u32) -> States {
  let numbers = unpack(v);
  return States(take(numbers[0], index), take(numbers[1], index + step));
}

// `total` with one half of a word.
fn with_edge(total: States, v: V, half: u32, index: u32) -> States {
  let numbers = unpack(v);
  let number = select(numbers[0], numbers[1], half == 1u);
  return States(join(total[0], take(number, index)), total[1]);
}

fn joined(a: States, b: States) -> States {
  return States(join(a[0], b[0]), join(a[1], b[1]));
}

fn joined_lanes(a: States) -> State {
  return join(a[0], a[1]);
}

fn lane_of(a: States, l: u32) -> State {
  return select(a[0], a[1], l == 1u);
}
