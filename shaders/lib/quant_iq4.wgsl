// Quants of four bits that are places in a table of 16 values, those of IQ4_NL and IQ4_XS.
//
// needs: lib/quant_nibbles, lib/quant_nibble_words

// The values at these places: the whole numbers nearest to a polynomial, which is less than 0.44 from each.
fn values_at(places: vec4<u32>) -> vec4<f32> {
  let x = vec4<f32>(places) - 8.0;
  let y = fma(fma(x, vec4<f32>(0.00158604282), vec4<f32>(0.0818398097)), x, vec4<f32>(-0.0168120539));
  return round(fma(fma(y, x, vec4<f32>(11.4398097)), x, vec4<f32>(1.43298969)));
}

fn eight(q: Quants, block: u32) -> Eight {
  let word = q.words[block];
  return Eight(values_at(first_nibbles(word)), values_at(last_nibbles(word)));
}
