// The sort of numbers of f32 that are moved as words, so that they keep their bits.

fn load(start: u32, i: u32, column: u32) -> vec2<u32> {
  return vec2<u32>(key_of_f32(bitcast<f32>(x[start + i])) ^ params.flip, column);
}
