// The quants of Mxfp4 as bytes: twice the values of E2M1.
//
// needs: lib/quant_mxfp4

const HAS_OFFSET = false;

// Of numbers of E2M1 in bytes. Up to 3, a number is its magnitude; from 4 on, the two lowest bits count twice, and four
// times where both are set. Numbers that are 128 larger pass no byte, and their top bits are the opposite of the signs.
fn doubled_bytes(codes: vec4<u32>) -> vec4<u32> {
  let ones = vec4<u32>(0x01010101u);
  let large = (codes >> vec4<u32>(2u)) & ones;
  let low = codes & (large * 3u);
  let both = low & (low >> vec4<u32>(1u)) & ones;
  let magnitudes = (codes & vec4<u32>(0x07070707u)) + low + 2u * both;
  let negative = ((codes >> vec4<u32>(3u)) & ones) * 255u;
  return (vec4<u32>(0x80808080u) + magnitudes - 2u * (magnitudes & negative)) ^ vec4<u32>(0x80808080u);
}

fn bytes_of(q: Quants) -> Bytes {
  let nibbles = vec4<u32>(0x0f0f0f0fu);
  return Bytes(doubled_bytes(q.words & nibbles), doubled_bytes((q.words >> vec4<u32>(4u)) & nibbles));
}
