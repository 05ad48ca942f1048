// Elements of f32 that are normalised, and rounded to f16.
//
// needs: a, norm

// Eight neighbouring elements of a row, and their weights.
struct HeldEight {
  low: vec4<f32>,
  high: vec4<f32>,
  low_weight: vec4<f32>,
  high_weight: vec4<f32>,
}

// The elements from `at` on, with the weights from `weight` on: multiples of four.
fn held_eight(at: u32, weight: u32) -> HeldEight {
  return HeldEight(
    bitcast<vec4<f32>>(a[at / 4u]),
    bitcast<vec4<f32>>(a[at / 4u + 1u]),
    bitcast<vec4<f32>>(norm[weight / 4u]),
    bitcast<vec4<f32>>(norm[weight / 4u + 1u]),
  );
}

fn squares_of(held: HeldEight) -> f32 {
  return dot(held.low, held.low) + dot(held.high, held.high);
}

// Four numbers as words of f16.
fn rounded_words(numbers: vec4<f32>) -> vec2<u32> {
  // pack2x16float doesn't say how it rounds.
  let halves = vec4<f32>(vec4<f16>(numbers));
  return vec2<u32>(pack2x16float(halves.xy), pack2x16float(halves.zw));
}

fn normalised(held: HeldEight, factor: f32) -> vec4<u32> {
  let low = rounded_words(held.low * factor * held.low_weight);
  return vec4<u32>(low, rounded_words(held.high * factor * held.high_weight));
}
