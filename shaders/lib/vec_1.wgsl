// Storage that is read and written number by number.
//
// needs: T, A

alias V = T;
const WIDTH = 1u;

fn unpack(v: V) -> array<A, WIDTH> {
  return array<A, WIDTH>(A(v));
}

fn pack(numbers: array<A, WIDTH>) -> V {
  return T(numbers[0]);
}
