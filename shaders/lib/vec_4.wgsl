// Storage that is read and written in vectors of four elements.
//
// needs: T, A

alias V = vec4<T>;
const WIDTH = 4u;

fn unpack(v: V) -> array<A, WIDTH> {
  return array<A, WIDTH>(A(v.x), A(v.y), A(v.z), A(v.w));
}

fn pack(numbers: array<A, WIDTH>) -> V {
  return V(T(numbers[0]), T(numbers[1]), T(numbers[2]), T(numbers[3]));
}
