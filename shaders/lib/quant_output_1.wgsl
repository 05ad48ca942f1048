// Words of weights as numbers of the output, one by one.
//
// needs: T, output, lib/quant_nibbles

alias OutputVector = T;

// Writes the first `count` weights of a word from the element `at` on.
fn write_word(w: Eight, at: u32, count: u32) {
  for (var l = 0u; l < min(8u, count); l++) {
    output[at + l] = T(select(w.hi[l % 4u], w.lo[l % 4u], l < 4u));
  }
}
