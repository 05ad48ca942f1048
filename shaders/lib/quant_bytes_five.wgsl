// Quants of five bits as bytes.
//
// needs: lib/quant_five

const HAS_OFFSET = true;

// Bits 0, 4, 1 and 5 of each of four numbers, brought to bit 4 of their bytes. The copies that a product adds up
// overlap elsewhere, and carry no further than to the next bit but one.
fn fifth_bits(bits: vec4<u32>) -> vec4<u32> {
  return ((bits & vec4<u32>(0x33u)) * vec4<u32>(0x00880110u)) & vec4<u32>(0x10101010u);
}

fn bytes_of(q: Quants) -> Bytes {
  let nibbles = vec4<u32>(0x0f0f0f0fu);
  let bits = vec4<u32>(q.high) >> vec4<u32>(0u, 8u, 16u, 24u);
  let first = q.words & nibbles;
  let last = (q.words >> vec4<u32>(4u)) & nibbles;
  return Bytes(first | fifth_bits(bits), last | fifth_bits(bits >> vec4<u32>(2u)));
}
