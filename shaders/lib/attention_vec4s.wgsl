// Four neighbouring elements of attention's operands of f16, for what isn't read in a hurry.
//
// needs: the bindings `q`, `k` and `v` in vectors of eight elements

fn four_q(at: u32, left: u32) -> vec4<f32> {
  return four(q[at / 8u], at);
}

fn four_k(start: u32, d: u32) -> vec4<f32> {
  return four(k[(start + d) / 8u], start + d);
}

fn four_v(start: u32, d: u32) -> vec4<f32> {
  return four(v[(start + d) / 8u], start + d);
}

// The half of eight elements that begins with element `at`.
fn four(bits: vec4<u32>, at: u32) -> vec4<f32> {
  let half = select(bits.xy, bits.zw, at % 8u == 4u);
  return vec4<f32>(unpack2x16float(half.x), unpack2x16float(half.y));
}
