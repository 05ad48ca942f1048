// Elements of f16 that lie across two vectors of 16 bytes.

// The eight elements from `start` on, of which only where it lies in a vector counts: the first is in `low`,
// and `high` follows.
fn shifted_vector(low: vec4<u32>, high: vec4<u32>, start: u32) -> vec4<u32> {
  let word = start / 2u;
  let far = word % 4u >= 2u;
  let from_even = select(low, vec4<u32>(low.zw, high.xy), far);
  let rest = select(high.xy, high.zw, far);
  let odd = word % 2u == 1u;
  let v = select(from_even, vec4<u32>(from_even.yzw, rest.x), odd);
  let next = vec4<u32>(v.yzw, select(rest.x, rest.y, odd));
  return select(v, (v >> vec4<u32>(16u)) | (next << vec4<u32>(16u)), start % 2u == 1u);
}
