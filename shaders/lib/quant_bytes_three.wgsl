// The quants of Q3_K as bytes, less their zero point: sums of half blocks aren't there for it.
//
// needs: lib/quant_three

const HAS_OFFSET = false;

// Bits 0, 4, 1 and 5 of each of four numbers, brought to bit 2 of their bytes.
fn third_bits(bits: vec4<u32>) -> vec4<u32> {
  return (((bits & vec4<u32>(0x33u)) * vec4<u32>(0x00880110u)) & vec4<u32>(0x10101010u)) >> vec4<u32>(2u);
}

// Bytes from 0 to 7, less 4: no sum passes its byte, and its top bit is the opposite of the sign.
fn centred(bytes: vec4<u32>) -> vec4<u32> {
  return (bytes + vec4<u32>(0x7c7c7c7cu)) ^ vec4<u32>(0x80808080u);
}

// Of words, the pairs at bits 0, 4, 16 and 20, each in a byte.
fn pairs_in_bytes(words: vec4<u32>) -> vec4<u32> {
  return (words & vec4<u32>(0x00030003u)) | ((words << vec4<u32>(4u)) & vec4<u32>(0x03000300u));
}

fn bytes_of(q: Quants) -> Bytes {
  let bits = vec4<u32>(q.high) >> vec4<u32>(0u, 8u, 16u, 24u);
  let first = pairs_in_bytes(q.words) | third_bits(bits);
  let last = pairs_in_bytes(q.words >> vec4<u32>(2u)) | third_bits(bits >> vec4<u32>(2u));
  return Bytes(centred(first), centred(last));
}
