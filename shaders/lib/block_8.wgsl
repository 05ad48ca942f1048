// A square of numbers of 16 bits, eight to a vector.
//
// needs: src, dst

const WIDTH = 8u;

// Transposes the square whose first vectors in src and dst are `first`, each `step` vectors from the next.
fn transpose_square(first: vec2<u32>, step: vec2<u32>) {
  let a = src[first.x];
  let b = src[first.x + step.x];
  let c = src[first.x + 2u * step.x];
  let d = src[first.x + 3u * step.x];
  let e = src[first.x + 4u * step.x];
  let f = src[first.x + 5u * step.x];
  let g = src[first.x + 6u * step.x];
  let h = src[first.x + 7u * step.x];
  let at = first.y;
  write_two(at, step.y, vec4<u32>(a.x, c.x, e.x, g.x), vec4<u32>(b.x, d.x, f.x, h.x));
  write_two(at + 2u * step.y, step.y, vec4<u32>(a.y, c.y, e.y, g.y), vec4<u32>(b.y, d.y, f.y, h.y));
  write_two(at + 4u * step.y, step.y, vec4<u32>(a.z, c.z, e.z, g.z), vec4<u32>(b.z, d.z, f.z, h.z));
  write_two(at + 6u * step.y, step.y, vec4<u32>(a.w, c.w, e.w, g.w), vec4<u32>(b.w, d.w, f.w, h.w));
}

// The two rows that words of the even and of the odd rows hold in their lower and upper halves.
fn write_two(at: u32, step: u32, even: vec4<u32>, odd: vec4<u32>) {
  dst[at] = (even & vec4<u32>(0xffffu)) | (odd << vec4<u32>(16u));
  dst[at + step] = (even >> vec4<u32>(16u)) | (odd & vec4<u32>(0xffff0000u));
}
