// Quants of eight bits as numbers for fragments, exact in f16.
//
// needs: lib/quant_eight, lib/quant_halves

fn words_of(q: Quants, block: u32) -> vec2<u32> {
  let two = select(q.first, q.last, block >= 2u);
  return select(two.xy, two.zw, (block & 1u) == 1u);
}

// Four signed bytes. With their signs turned, they are 128 too large.
fn signed_halves(word: u32) -> vec4<f16> {
  let x = word ^ 0x80808080u;
  let low = (x & 0xffu) | ((x << 8u) & 0x00ff0000u);
  let high = ((x >> 16u) & 0xffu) | ((x >> 8u) & 0x00ff0000u);
  let bits = vec2<u32>(low, high) | vec2<u32>(KILO);
  let numbers = vec4<f16>(vec2<f16>(unpack2x16float(bits.x)), vec2<f16>(unpack2x16float(bits.y)));
  return numbers - vec4<f16>(1152.0h);
}

// The first four quants of a word, which has no zero point, and the last four.
fn first_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  return signed_halves(words_of(q, block).x);
}

fn last_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  return signed_halves(words_of(q, block).y);
}

// Four signed bytes, every second of them first, which takes half the instructions of their own order. With their signs
// turned, they are 128 too large.
fn signed_pairs(word: u32) -> vec4<f16> {
  let turned = kilo() ^ 0x00800080u;
  let even = (word & 0x00ff00ffu) ^ turned;
  let odd = ((word >> 8u) & 0x00ff00ffu) ^ turned;
  let numbers = vec4<f16>(vec2<f16>(unpack2x16float(even)), vec2<f16>(unpack2x16float(odd)));
  return numbers - vec4<f16>(1152.0h);
}

fn first_in_order(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  return signed_pairs(words_of(q, block).x);
}

fn last_in_order(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  return signed_pairs(words_of(q, block).y);
}

// Elements 0 and 2, and 1 and 3, of four in two words.
fn pairs_of(words: vec2<u32>) -> vec2<u32> {
  return vec2<u32>((words.x & 0xffffu) | (words.y << 16u), (words.x >> 16u) | (words.y & 0xffff0000u));
}

// Eight elements of A in the order of the quants of a word.
fn in_order_of_quants(elements: vec4<u32>) -> vec4<u32> {
  return vec4<u32>(pairs_of(elements.xy), pairs_of(elements.zw));
}
