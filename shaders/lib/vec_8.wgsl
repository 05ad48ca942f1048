// Storage of f16 that is read in vectors of 16 bytes. A vector of WGSL's own has 8 bytes of f16 at most, and
// naga has no bitcast to f16.
//
// needs: A = f32

alias V = vec4<u32>;
const WIDTH = 8u;

fn unpack(v: V) -> array<A, WIDTH> {
  let a = unpack2x16float(v.x);
  let b = unpack2x16float(v.y);
  let c = unpack2x16float(v.z);
  let d = unpack2x16float(v.w);
  return array<A, WIDTH>(a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y);
}
