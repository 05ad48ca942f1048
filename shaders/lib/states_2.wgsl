// Two states side by side, of the halves of a word.
//
// needs: the vec of a vector, the rule of a reduction

alias States = array<State, WIDTH>;
const IN_WORDS = 1u;

fn none() -> States {
  let state = start();
  return States(state, state);
}

// The state of each number of a word, whose first one has this index.
fn states(v: V, index: u32) -> States {
  let numbers = unpack(v);
  return States(take(numbers[0], index), take(numbers[1], index));
}

// `total` with one half of a word.
fn with_edge(total: States, v: V, half: u32, index: u32) -> States {
  let numbers = unpack(v);
  let number = select(numbers[0], numbers[1], half == 1u);
  return States(join(total[0], take(number, index)), total[1]);
}

// The numbers of `b` come behind those of `a`.
fn joined(a: States, b: States) -> States {
  return States(join_in_order(a[0], b[0]), join_in_order(a[1], b[1]));
}

// Where the numbers of a vector are neighbours in one output.
fn joined_lanes(a: States) -> State {
  return join(a[0], of_lane(a[1], 1u));
}

fn lane_of(a: States, l: u32) -> State {
  return select(a[0], a[1], l == 1u);
}
