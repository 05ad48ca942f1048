// Four elements of a row of attention's output.
//
// needs: T, the binding `o`

// Writes four elements from `at` on, or as many as there are. Written out: drivers keep a vector whose elements are counted
// in memory.
fn write_output(at: u32, count: u32, four: vec4<f32>) {
  o[at] = T(four.x);
  if count > 1u {
    o[at + 1u] = T(four.y);
  }
  if count > 2u {
    o[at + 2u] = T(four.z);
  }
  if count > 3u {
    o[at + 3u] = T(four.w);
  }
}
