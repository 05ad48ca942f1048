// Vectors of attention's operands that are read 16 bytes at a time: four elements of f32, or eight of f16.
//
// needs: HALF_Q, HALF_KV, the bindings `q`, `k` and `v`

alias Words = vec4<u32>;
// What is fetched at once and not yet taken apart.
alias Fetched = vec4<u32>;

// Vectors of four elements in one load.
const UNIT_Q: u32 = 1u + HALF_Q;
const UNIT_KV: u32 = 1u + HALF_KV;

// The elements from element `at` on.
fn load_q(at: u32, left: u32) -> array<vec4<f32>, UNIT_Q> {
  let words = q[at / (4u * UNIT_Q)];
  var numbers: array<vec4<f32>, UNIT_Q>;
  numbers[0] = first_four(words, HALF_Q == 1u);
  if HALF_Q == 1u {
    numbers[UNIT_Q - 1u] = four(words.zw);
  }
  return numbers;
}

fn fetch_k(at: u32, left: u32) -> Fetched {
  return k[at / (4u * UNIT_KV)];
}

fn fetch_v(at: u32, left: u32) -> Fetched {
  return v[at / (4u * UNIT_KV)];
}

fn numbers_kv(words: Fetched) -> array<vec4<f32>, UNIT_KV> {
  var numbers: array<vec4<f32>, UNIT_KV>;
  numbers[0] = first_four(words, HALF_KV == 1u);
  if HALF_KV == 1u {
    numbers[UNIT_KV - 1u] = four(words.zw);
  }
  return numbers;
}

fn first_four(words: Words, half: bool) -> vec4<f32> {
  if half {
    return four(words.xy);
  }
  return bitcast<vec4<f32>>(words);
}

fn four(words: vec2<u32>) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}

// A stride, and where an element lies in a vector, in what `load_k` and `load_v` count.
fn kv_step(stride: u32) -> u32 {
  return stride / (4u * UNIT_KV);
}

fn kv_at(d: u32) -> u32 {
  return d / (4u * UNIT_KV);
}

fn load_k(at: u32, left: u32) -> Fetched {
  return k[at];
}

fn load_v(at: u32, left: u32) -> Fetched {
  return v[at];
}

// What the numbers of keys and values are multiplied by.
fn scale_kv(words: Fetched) -> f32 {
  return 1.0;
}

// Four elements from element `at` on, for what isn't read in a hurry.
fn four_q(at: u32, left: u32) -> vec4<f32> {
  return load_q(at, left)[at / 4u % UNIT_Q];
}

// Four elements of a vector from `d` on.
fn four_k(start: u32, d: u32) -> vec4<f32> {
  let at = start + d;
  return numbers_kv(fetch_k(at, head_dim() - d))[at / 4u % UNIT_KV];
}

fn four_v(start: u32, d: u32) -> vec4<f32> {
  let at = start + d;
  return numbers_kv(fetch_v(at, v_head_dim() - d))[at / 4u % UNIT_KV];
}
