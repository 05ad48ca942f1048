// Words of weights as vectors of four numbers of the output, of which its start, its leading dimension and its
// columns are multiples.
//
// needs: T, output, lib/quant_nibbles

alias OutputVector = vec4<T>;

// Writes the first `count` weights of a word from the element `at` on.
fn write_word(w: Eight, at: u32, count: u32) {
  output[at / 4u] = OutputVector(w.lo);
  if count > 4u {
    output[at / 4u + 1u] = OutputVector(w.hi);
  }
}
