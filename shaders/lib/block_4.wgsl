// A square of numbers of 32 bits, four to a vector.
//
// needs: src, dst

const WIDTH = 4u;

// Transposes the square whose first vectors in src and dst are `first`, each `step` vectors from the next.
fn transpose_square(first: vec2<u32>, step: vec2<u32>) {
  let a = src[first.x];
  let b = src[first.x + step.x];
  let c = src[first.x + 2u * step.x];
  let d = src[first.x + 3u * step.x];
  dst[first.y] = vec4<u32>(a.x, b.x, c.x, d.x);
  dst[first.y + step.y] = vec4<u32>(a.y, b.y, c.y, d.y);
  dst[first.y + 2u * step.y] = vec4<u32>(a.z, b.z, c.z, d.z);
  dst[first.y + 3u * step.y] = vec4<u32>(a.w, b.w, c.w, d.w);
}
