// Quants in the order of their words, which is that of A's elements, for fragments of quant/skinny_cooperative.
//
// needs: first_quants and last_quants of a lib/quant_fragments_*

// Eight elements of A in the order of the quants of a word.
fn in_order_of_quants(elements: vec4<u32>) -> vec4<u32> {
  return elements;
}

fn first_in_order(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  return first_quants(q, block, zero);
}

fn last_in_order(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  return last_quants(q, block, zero);
}
