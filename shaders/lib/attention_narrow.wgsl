// Keys and values of attention that are read number by number, four at a time, and 0 where a vector has no more.
// Written out, as drivers may count the iterations of loops.
//
// needs: HALF_KV, lib/attention_narrow_q, the bindings `k` and `v`

// What is fetched at once.
alias Fetched = vec4<f32>;

const UNIT_KV: u32 = 1u;

fn fetch_k(at: u32, left: u32) -> Fetched {
  var x = vec4<f32>();
  if left > 0u {
    x.x = number(k[word(at, HALF_KV)], at, HALF_KV);
  }
  if left > 1u {
    x.y = number(k[word(at + 1u, HALF_KV)], at + 1u, HALF_KV);
  }
  if left > 2u {
    x.z = number(k[word(at + 2u, HALF_KV)], at + 2u, HALF_KV);
  }
  if left > 3u {
    x.w = number(k[word(at + 3u, HALF_KV)], at + 3u, HALF_KV);
  }
  return x;
}

fn fetch_v(at: u32, left: u32) -> Fetched {
  var x = vec4<f32>();
  if left > 0u {
    x.x = number(v[word(at, HALF_KV)], at, HALF_KV);
  }
  if left > 1u {
    x.y = number(v[word(at + 1u, HALF_KV)], at + 1u, HALF_KV);
  }
  if left > 2u {
    x.z = number(v[word(at + 2u, HALF_KV)], at + 2u, HALF_KV);
  }
  if left > 3u {
    x.w = number(v[word(at + 3u, HALF_KV)], at + 3u, HALF_KV);
  }
  return x;
}

fn numbers_kv(words: Fetched) -> array<vec4<f32>, UNIT_KV> {
  return array<vec4<f32>, UNIT_KV>(words);
}

// A stride, and where an element lies in a vector, in what `load_k` and `load_v` count.
fn kv_step(stride: u32) -> u32 {
  return stride;
}

fn kv_at(d: u32) -> u32 {
  return d;
}

fn load_k(at: u32, left: u32) -> Fetched {
  return fetch_k(at, left);
}

fn load_v(at: u32, left: u32) -> Fetched {
  return fetch_v(at, left);
}

// What the numbers of keys and values are multiplied by.
fn scale_kv(words: Fetched) -> f32 {
  return 1.0;
}

// Four elements of a vector from `d` on, for what isn't read in a hurry.
fn four_k(start: u32, d: u32) -> vec4<f32> {
  return fetch_k(start + d, head_dim() - d);
}

fn four_v(start: u32, d: u32) -> vec4<f32> {
  return fetch_v(start + d, v_head_dim() - d);
}
