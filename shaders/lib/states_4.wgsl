// Four states side by side. Only constants tell them apart, or a driver may keep them in memory.
//
// needs: the vec of a vector, the rule of a reduction

alias States = array<State, WIDTH>;
const IN_WORDS = 0u;

fn none() -> States {
  let state = start();
  return States(state, state, state, state);
}

// The state of each number of a vector. `index` is the first one's among all that are reduced, and `step` the
// difference to the next.
fn states(v: V, index: u32, step: u32) -> States {
  let numbers = unpack(v);
  return States(
    take(numbers[0], index),
    take(numbers[1], index + step),
    take(numbers[2], index + 2u * step),
    take(numbers[3], index + 3u * step),
  );
}

fn joined(a: States, b: States) -> States {
  return States(join(a[0], b[0]), join(a[1], b[1]), join(a[2], b[2]), join(a[3], b[3]));
}

fn joined_lanes(a: States) -> State {
  var state = a[0];
  state = join(state, a[1]);
  state = join(state, a[2]);
  state = join(state, a[3]);
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
