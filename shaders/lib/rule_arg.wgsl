// The index of the largest or smallest element.
//
// A number is turned into a key that is larger the better it is, NaN being best, whatever its type. Equal
// keys are decided by the index, so the order in which states are joined doesn't matter.
//
// needs: KIND, SMALLEST, PAIRS, y of u32

// A key and the index of its number.
alias State = vec2<u32>;

const FLOAT = 0u;
const SIGNED_INTEGER = 1u;

fn start() -> State {
  return State(0u, 0xffffffffu);
}

fn take(x: A, index: u32) -> State {
  var bits = bitcast<u32>(x);
  if KIND == FLOAT {
    if (bits & 0x7fffffffu) > 0x7f800000u {
      return State(0xffffffffu, index);
    }
    // −0 equals 0.
    bits = select(bits, 0u, bits == 0x80000000u);
    bits = select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
  } else if KIND == SIGNED_INTEGER {
    bits = bits ^ 0x80000000u;
  }
  return State(select(bits, ~bits, SMALLEST == 1u), index);
}

fn join(a: State, b: State) -> State {
  let second = b.x > a.x || (b.x == a.x && b.y < a.y);
  return select(a, b, second);
}

// The index, or the whole state for a reduction that goes on.
fn store(i: u32, state: State) {
  if PAIRS == 1u {
    y[2u * i] = state.x;
    y[2u * i + 1u] = state.y;
  } else {
    y[i] = state.y;
  }
}
