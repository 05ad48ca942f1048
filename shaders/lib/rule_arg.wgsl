// The index of the largest or smallest element.
//
// A number is turned into a key that is larger the better it is, NaN being best, whatever its type. Equal
// keys are decided by the index, so the order in which `join` gets states doesn't matter.
//
// needs: KIND, SMALLEST, PAIRS, params.length, y of u32

// A key and an index: that of the key's number, or before lanes are joined that of the first lane's.
alias State = vec2<u32>;

const FLOAT = 0u;
const SIGNED_INTEGER = 1u;

// No number has a smaller key. If none has a larger one, the first is the result, or −1 if there is none.
fn start() -> State {
  return State(0u, 0xffffffffu);
}

fn take(x: A, index: u32) -> State {
  let bits = bitcast<u32>(x);
  if KIND == FLOAT {
    let magnitude = bits & 0x7fffffffu;
    if magnitude > 0x7f800000u {
      return State(0xffffffffu, index);
    }
    // −0 equals 0.
    let is_below = (bits >= 0x80000000u) != (SMALLEST == 1u);
    return State(select(0x80000000u + magnitude, 0x80000000u - magnitude, is_below), index);
  }
  let key = select(bits, bits ^ 0x80000000u, KIND == SIGNED_INTEGER);
  return State(select(key, ~key, SMALLEST == 1u), index);
}

fn join(a: State, b: State) -> State {
  let second = b.x > a.x || (b.x == a.x && b.y < a.y);
  return select(a, b, second);
}

// Where b has the larger index.
fn join_in_order(a: State, b: State) -> State {
  return select(a, b, b.x > a.x);
}

fn of_lane(state: State, lane: u32) -> State {
  return State(state.x, state.y + lane);
}

// The index, or the whole state for a reduction that goes on.
fn store(i: u32, state: State) {
  if PAIRS == 1u {
    y[2u * i] = state.x;
    y[2u * i + 1u] = state.y;
  } else {
    y[i] = select(state.y, 0u, state.x == 0u && params.length > 0u);
  }
}
