// C of a matrix product as vectors of four elements, of which every row is a whole number.
//
// needs: TC, c

alias StoredC = vec4<TC>;

fn c_element(i: u32) -> f32 {
  return f32(c[i / 4u][i % 4u]);
}

fn c_four(at: vec4<u32>) -> vec4<f32> {
  return vec4<f32>(c[at.x / 4u]);
}

// Writes four adjacent elements. None is ever missing, and `step` is 1.
fn write_c(at: u32, step: u32, count: u32, v: vec4<f32>) {
  c[at / 4u] = vec4<TC>(v);
}
