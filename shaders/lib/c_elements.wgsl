// C of a matrix product as elements.
//
// needs: TC, c

alias StoredC = TC;

fn c_element(i: u32) -> f32 {
  return f32(c[i]);
}

fn c_four(at: vec4<u32>) -> vec4<f32> {
  return vec4<f32>(f32(c[at.x]), f32(c[at.y]), f32(c[at.z]), f32(c[at.w]));
}

// Writes the first `count` of four elements that are `step` apart. All four are written at once where C has them:
// between conditional writes, each would be waited for.
fn write_c(at: u32, step: u32, count: u32, v: vec4<f32>) {
  if count == 4u {
    c[at] = TC(v.x);
    c[at + step] = TC(v.y);
    c[at + 2u * step] = TC(v.z);
    c[at + 3u * step] = TC(v.w);
    return;
  }
  c[at] = TC(v.x);
  if count > 1u { c[at + step] = TC(v.y); }
  if count > 2u { c[at + 2u * step] = TC(v.z); }
}
