// Quants of four bits.
//
// needs: lib/quant_nibbles, lib/quant_nibble_words

fn eight(q: Quants, block: u32) -> Eight {
  let word = q.words[block];
  return Eight(vec4<f32>(first_nibbles(word)), vec4<f32>(last_nibbles(word)));
}
