// Reductions of floating-point numbers to one.
//
// needs: Y, OP, MAP, ROOT, params.divisor, y

alias State = f32;

fn start() -> State {
  if MAP == IS_SET && OP >= MAX {
    return select(0.0, 1.0, OP == MIN);
  }
  return identity(OP);
}

fn take(x: f32, index: u32) -> State {
  switch MAP {
    case ABSOLUTE: { return abs(x); }
    case SQUARE: { return x * x; }
    case IS_SET: { return select(0.0, 1.0, (bitcast<u32>(x) & 0x7fffffffu) != 0u); }
    default: { return x; }
  }
}

fn join(a: State, b: State) -> State {
  return combine(OP, a, b);
}

fn join_in_order(a: State, b: State) -> State {
  return join(a, b);
}

fn of_lane(state: State, lane: u32) -> State {
  return state;
}

fn store(i: u32, state: State) {
  var result = state;
  if ROOT == 1u {
    // Drivers' root is only asked for what it can do.
    result = select(sqrt(state), state, is_nan(state) || is_inf(state) || state == 0.0);
  } else if params.divisor == 0.0 {
    result = nan();
  } else if params.divisor != 1.0 {
    result = state / params.divisor;
  }
  y[i] = Y(result);
}
