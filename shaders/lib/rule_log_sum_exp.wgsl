// The logarithm of a sum of exponentials.
//
// needs: Y, PAIRS, y

fn start() -> State {
  return State(-inf(), 0.0);
}

fn take(x: f32, index: u32) -> State {
  return State(x, 1.0);
}

fn join_in_order(a: State, b: State) -> State {
  return join(a, b);
}

fn of_lane(state: State, lane: u32) -> State {
  return state;
}

// The logarithm, which a reduction can go on with, or the state for those who need its parts.
fn store(i: u32, state: State) {
  let m = state.x;
  if PAIRS == 1u {
    y[2u * i] = Y(m);
    y[2u * i + 1u] = Y(state.y);
    return;
  }
  // Infinities and NaN are what the maximum is.
  y[i] = Y(select(m + unary_log(state.y), m, is_nan(m) || is_inf(m)));
}
