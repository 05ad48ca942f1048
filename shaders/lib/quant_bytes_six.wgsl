// Quants of six bits as bytes, less their zero point: sums of half blocks aren't there for it.
//
// needs: lib/quant_six

const HAS_OFFSET = false;

// Bits 0 and 1, 8 and 9, 2 and 3, 10 and 11 of each of four numbers, brought to bits 4 and 5 of their bytes.
fn upper_bits(bits: vec4<u32>) -> vec4<u32> {
  return ((bits & vec4<u32>(0x0303u)) << vec4<u32>(4u)) | ((bits & vec4<u32>(0x0c0cu)) << vec4<u32>(18u));
}

// Bytes from 0 to 63, less 32: no sum passes its byte, and its top bit is the opposite of the sign.
fn centred(bytes: vec4<u32>) -> vec4<u32> {
  return (bytes + vec4<u32>(0x60606060u)) ^ vec4<u32>(0x80808080u);
}

fn bytes_of(q: Quants) -> Bytes {
  let nibbles = vec4<u32>(0x0f0f0f0fu);
  let bits = q.high.xxyy >> vec4<u32>(0u, 16u, 0u, 16u);
  let first = q.words & nibbles;
  let last = (q.words >> vec4<u32>(4u)) & nibbles;
  return Bytes(centred(first | upper_bits(bits)), centred(last | upper_bits(bits >> vec4<u32>(4u))));
}
