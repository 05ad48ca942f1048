// The values of IQ4_NL and IQ4_XS as numbers of f16, on any device. They have no zero point.
//
// needs: lib/quant_iq4

fn first_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  return vec4<f16>(values_at(first_nibbles(q.words[block])));
}

fn last_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  return vec4<f16>(values_at(last_nibbles(q.words[block])));
}
