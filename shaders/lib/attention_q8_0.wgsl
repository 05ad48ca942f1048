// Keys and values of attention in blocks of Q8_0: 32 elements in nine words, of which the first has the scale as f16
// and the others four quants of i8 each. They are read eight elements at a time. Starts and strides are in words.
//
// needs: lib/attention, lib/attention_narrow_q, the bindings `k` and `v`

// The word of the scale, and two of quants.
alias Fetched = vec3<u32>;

// Vectors of four elements in one load.
const UNIT_KV: u32 = 2u;

const BLOCK_WORDS: u32 = 9u;

// A stride, and where an element lies in a vector, in what `load_k` and `load_v` count.
fn kv_step(stride: u32) -> u32 {
  return stride;
}

fn kv_at(d: u32) -> u32 {
  return d / 32u * BLOCK_WORDS + 1u + d % 32u / 4u;
}

// Words from the scale to the quants where the vector has so many elements left, which are whole blocks from their
// first one on.
fn behind_scale(left: u32) -> u32 {
  return 1u + (0u - left) % 32u / 4u;
}

fn load_k(at: u32, left: u32) -> Fetched {
  return vec3<u32>(k[at - behind_scale(left)], k[at], k[at + 1u]);
}

fn load_v(at: u32, left: u32) -> Fetched {
  return vec3<u32>(v[at - behind_scale(left)], v[at], v[at + 1u]);
}

// What the numbers of keys and values are multiplied by.
fn scale_kv(words: Fetched) -> f32 {
  return unpack2x16float(words.x).x;
}

// The quants.
fn numbers_kv(words: Fetched) -> array<vec4<f32>, UNIT_KV> {
  return array<vec4<f32>, UNIT_KV>(signed_bytes(words.y), signed_bytes(words.z));
}

fn signed_bytes(word: u32) -> vec4<f32> {
  return vec4<f32>((vec4<i32>(bitcast<i32>(word)) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}

// Four elements of a vector from `d` on, for what isn't read in a hurry.
fn four_k(start: u32, d: u32) -> vec4<f32> {
  let block = start + d / 32u * BLOCK_WORDS;
  return signed_bytes(k[block + 1u + d % 32u / 4u]) * unpack2x16float(k[block]).x;
}

fn four_v(start: u32, d: u32) -> vec4<f32> {
  let block = start + d / 32u * BLOCK_WORDS;
  return signed_bytes(v[block + 1u + d % 32u / 4u]) * unpack2x16float(v[block]).x;
}
