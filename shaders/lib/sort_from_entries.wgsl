// The sort of entries.

fn load(start: u32, i: u32, column: u32) -> vec2<u32> {
  return vec2<u32>(x[start + 2u * i], x[start + 2u * i + 1u]);
}
