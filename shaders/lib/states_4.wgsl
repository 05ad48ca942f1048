// Four states side by side. Only constants tell them apart, or a driver may keep them in memory.
//
// needs: the vec of a vector, the rule of a reduction

alias States = array<State, WIDTH>;
const IN_WORDS = 0u;

fn none() -> States {
  let state = start();
  return States(state, state, state, state);
}

// The state of each number of a vector, whose first one has this index.
fn states(v: V, index: u32) -> States {
  let numbers = unpack(v);
  return States(
    take(numbers[0], index),
    take(numbers[1], index),
    take(numbers[2], index),
    take(numbers[3], index),
  );
}

// The numbers of `b` come behind those of `a`.
fn joined(a: States, b: States) -> States {
  return States(
    join_in_order(a[0], b[0]),
    join_in_order(a[1], b[1]),
    join_in_order(a[2], b[2]),
    join_in_order(a[3], b[3]),
  );
}

// Where the numbers of a vector are neighbours in one output.
fn joined_lanes(a: States) -> State {
  var state = a[0];
  state = join(state, of_lane(a[1], 1u));
  state = join(state, of_lane(a[2], 2u));
  state = join(state, of_lane(a[3], 3u));
  return state;
}

fn lane_of(a: States, l: u32) -> State {
  var state = a[0];
  state = select(state, a[1], l == 1u);
  state = select(state, a[2], l == 2u);
  state = select(state, a[3], l == 3u);
  return state;
}

fn with_edge(total: States, v: V, half: u32, index: u32) -> States {
  return total;
}
