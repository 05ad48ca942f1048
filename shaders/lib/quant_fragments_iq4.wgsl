// The values of IQ4_NL and IQ4_XS as numbers for fragments, exact in f16. They have no zero point.
//
// needs: lib/quant_iq4, lib/quant_halves

// The values at places in the table, from which 8 was subtracted: 11 times the difference x, and what is left, which is the whole
// number nearest to a polynomial of x. Its last step rounds, as f16 has whole numbers alone between 1024 and 2048; as words,
// results are f16 on devices that have more digits in between, too. On a device that rounds otherwise, products are wrong, so
// this file is for kernels with a self-test.
fn values_of(x: vec2<f16>) -> vec2<f16> {
  var y = fma(x, vec2<f16>(0.0010709763h), vec2<f16>(0.081726074h));
  y = fma(y, x, vec2<f16>(0.018798828h));
  y = fma(y, x, vec2<f16>(0.42675781h));
  let rounded = vec2<f16>(unpack2x16float(pack2x16float(vec2<f32>(fma(y, x, vec2<f16>(1537.0h))))));
  return fma(x, vec2<f16>(11.0h), rounded - vec2<f16>(1536.0h));
}

fn values_of_four(places: vec4<f16>) -> vec4<f16> {
  return vec4<f16>(values_of(places.xy), values_of(places.zw));
}

fn first_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  let word = q.words[block];
  return values_of_four(less(word & EVEN, word & ODD, 8.0h));
}

fn last_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  let word = q.words[block] >> 8u;
  return values_of_four(less(word & EVEN, word & ODD, 8.0h));
}
