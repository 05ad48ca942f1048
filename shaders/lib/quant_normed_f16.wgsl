// Elements of f16 that are normalised.
//
// needs: a, norm

// Eight neighbouring elements of a row, and their weights.
struct HeldEight {
  x: vec4<u32>,
  weight: vec4<u32>,
}

// The elements from `at` on, with the weights from `weight` on: multiples of eight.
fn held_eight(at: u32, weight: u32) -> HeldEight {
  return HeldEight(a[at / 8u], norm[weight / 8u]);
}

fn square(x: u32) -> f32 {
  let numbers = unpack2x16float(x);
  return dot(numbers, numbers);
}

fn squares_of(held: HeldEight) -> f32 {
  let x = held.x;
  return square(x.x) + square(x.y) + square(x.z) + square(x.w);
}

// x · factor · weight of two elements.
fn scaled(x: u32, weight: u32, factor: f32) -> u32 {
  let numbers = unpack2x16float(x) * factor * unpack2x16float(weight);
  // pack2x16float doesn't say how it rounds.
  return pack2x16float(vec2<f32>(vec2<f16>(numbers)));
}

fn normalised(held: HeldEight, factor: f32) -> vec4<u32> {
  let x = held.x;
  let weight = held.weight;
  return vec4<u32>(
    scaled(x.x, weight.x, factor),
    scaled(x.y, weight.y, factor),
    scaled(x.z, weight.z, factor),
    scaled(x.w, weight.w, factor),
  );
}
