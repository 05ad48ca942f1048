// The values of IQ4_NL and IQ4_XS as bytes.
//
// needs: lib/quant_iq4

const HAS_OFFSET = false;

// Four bytes of values, of the places in the bytes of a word.
fn value_bytes(places: u32) -> u32 {
  let values = values_at((vec4<u32>(places) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(15u));
  return pack4xI8(vec4<i32>(values));
}

fn values_of_words(words: vec4<u32>) -> vec4<u32> {
  return vec4<u32>(value_bytes(words.x), value_bytes(words.y), value_bytes(words.z), value_bytes(words.w));
}

fn bytes_of(q: Quants) -> Bytes {
  return Bytes(values_of_words(q.words), values_of_words(q.words >> vec4<u32>(4u)));
}
