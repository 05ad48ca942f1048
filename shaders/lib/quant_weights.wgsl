// Weights of f16.
//
// needs: HALF_SCALES, lib/quant_nibbles

// Four weights, of quants less their zero point. Where scales are f16, one multiplication rounds.
fn weights(q: vec4<f16>, s: Scale) -> vec4<f16> {
  if HALF_SCALES == 1u {
    return f16(s.scale) * q;
  }
  return vec4<f16>(s.scale * vec4<f32>(q) - s.min);
}
