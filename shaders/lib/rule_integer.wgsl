// Reductions of integers to one.
//
// needs: A, Y, OP, MAP, SIGNED, y

alias State = A;

fn start() -> State {
  if MAP == IS_SET {
    return select(A(0), A(1), OP == MIN);
  }
  switch OP {
    case PROD: { return A(1); }
    case MAX: { return bitcast<A>(SIGNED << 31u); }
    case MIN: { return bitcast<A>(0xffffffffu >> SIGNED); }
    default: { return A(0); }
  }
}

fn take(x: A, index: u32) -> State {
  if MAP == IS_SET {
    return select(A(0), A(1), x != A(0));
  }
  return x;
}

fn join(a: State, b: State) -> State {
  switch OP {
    case PROD: { return a * b; }
    case MAX: { return max(a, b); }
    case MIN: { return min(a, b); }
    default: { return a + b; }
  }
}

fn join_in_order(a: State, b: State) -> State {
  return join(a, b);
}

fn of_lane(state: State, lane: u32) -> State {
  return state;
}

fn store(i: u32, state: State) {
  y[i] = Y(state);
}
