// Pairs of elements of a head, which are rotated by the angle of a row's position, (x, y) → (x·cos − y·sin, x·sin + y·cos).
//
// needs: INTERLEAVED, cosines, sines, positions, and of the parameters cos, sin and positions (their first elements), pairs (of a
// head) and max_position

// The first and second element of a pair in a head.
fn places_of(pair: u32) -> vec2<u32> {
  if INTERLEAVED == 1u {
    return vec2<u32>(2u * pair, 2u * pair + 1u);
  }
  return vec2<u32>(pair, pair + params.pairs);
}

// The elements of a pair of row i.
fn rotated(i: u32, pair: u32, x: vec2<f32>) -> vec2<f32> {
  let position = min(positions[params.positions + i], params.max_position - 1u);
  let angle = position * params.pairs + pair;
  let c = cosines[params.cos + angle];
  let s = sines[params.sin + angle];
  return vec2<f32>(x.x * c - x.y * s, x.x * s + x.y * c);
}
