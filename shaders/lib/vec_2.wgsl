// Storage of f16 in words of two.
//
// needs: A = f32

alias V = u32;
const WIDTH = 2u;

fn unpack(v: V) -> array<A, WIDTH> {
  let numbers = unpack2x16float(v);
  return array<A, WIDTH>(numbers.x, numbers.y);
}

fn pack(numbers: array<A, WIDTH>) -> V {
  return pack2x16float(vec2<f32>(numbers[0], numbers[1]));
}
