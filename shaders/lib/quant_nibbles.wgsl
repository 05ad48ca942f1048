// Eight consecutive quants of a word, and what of a format turns them into weights.

struct Eight {
  lo: vec4<f32>,
  hi: vec4<f32>,
}

// A weight is scale · (quant − zero) − min.
struct Scale {
  scale: f32,
  zero: f32,
  min: f32,
}

// Number `i` of f16 in words.
fn half_of(words: vec2<f32>, i: u32) -> f32 {
  return select(words.x, words.y, (i & 1u) == 1u);
}

// The nibbles of a word, which lie in the order 0, 2, 4, 6, 1, 3, 5, 7.
fn first_nibbles(word: u32) -> vec4<u32> {
  return (vec4<u32>(word) >> vec4<u32>(0u, 16u, 4u, 20u)) & vec4<u32>(15u);
}

fn last_nibbles(word: u32) -> vec4<u32> {
  return (vec4<u32>(word) >> vec4<u32>(8u, 24u, 12u, 28u)) & vec4<u32>(15u);
}

// The weights of a word.
fn weights_of(q: Eight, s: Scale) -> Eight {
  return Eight(s.scale * (q.lo - s.zero) - s.min, s.scale * (q.hi - s.zero) - s.min);
}
