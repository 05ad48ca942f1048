// Quants of four bits as bytes.
//
// needs: lib/quant_four

const HAS_OFFSET = true;

fn bytes_of(q: Quants) -> Bytes {
  let nibbles = vec4<u32>(0x0f0f0f0fu);
  return Bytes(q.words & nibbles, (q.words >> vec4<u32>(4u)) & nibbles);
}
