// How the operands of attention/flash come into its workgroup memory.
//
// needs: the declarations of attention/flash, lib/attention, and lib/attention_wide or lib/attention_narrow

// Puts a chunk of the tile's queries into workgroup memory, with 0 beyond a vector's end. Queries beyond the
// last are the last, and not written.
fn stage_q(tile: Tile, index: u32, chunk: u32) {
  const COLUMNS_Q = VEC4S / UNIT_Q;
  let column = index % COLUMNS_Q * UNIT_Q;
  let d = (chunk * VEC4S + column) * 4u;
  var numbers: array<array<vec4<f32>, UNIT_Q>, LOADS>;
  if d < head_dim() {
    for (var i = 0u; i < LOADS; i++) {
      let query = min(tile.query + (i * THREADS + index) / COLUMNS_Q, params.seq_q - 1u);
      numbers[i] = load_q(tile.q + query * params.q.w + d, head_dim() - d);
    }
  }
  for (var i = 0u; i < LOADS; i++) {
    let row = (i * THREADS + index) / COLUMNS_Q;
    for (var u = 0u; u < UNIT_Q; u++) {
      sh[row * VEC4S + ((column + u) ^ (row % 8u))] = numbers[i][u];
    }
  }
}

// An invocation's share of a chunk of the block of keys from `key` on; nothing is read behind the last block.
fn fetch_keys(tile: Tile, index: u32, key: u32, chunk: u32) -> array<Fetched, FETCHES> {
  const COLUMNS_K = VEC4S / UNIT_KV;
  let d = (chunk * VEC4S + index % COLUMNS_K * UNIT_KV) * 4u;
  var result: array<Fetched, FETCHES>;
  if d < head_dim() && key < tile.end {
    for (var i = 0u; i < FETCHES; i++) {
      let token = min(key + (i * THREADS + index) / COLUMNS_K, params.seq_kv - 1u);
      result[i] = fetch_k(tile.k + token * params.k.w + d, head_dim() - d);
    }
  }
  return result;
}

fn stage_keys(index: u32, fetched: array<Fetched, FETCHES>) {
  const COLUMNS_K = VEC4S / UNIT_KV;
  let all = fetched;
  for (var i = 0u; i < FETCHES; i++) {
    let row = (i * THREADS + index) / COLUMNS_K;
    let numbers = numbers_kv(all[i]);
    for (var u = 0u; u < UNIT_KV; u++) {
      sh[KEYS_AT + row * VEC4S + ((index % COLUMNS_K * UNIT_KV + u) ^ (row % 8u))] = numbers[u];
    }
  }
}

// An invocation's share of the values that belong to SLOTS vec4s of weights from `slot` on, of the pass from
// `key` on: four groups of SLOTS keys. Keys that nobody sees have values of 0, whatever is stored there.
fn fetch_values(tile: Tile, index: u32, key: u32, slot: u32) -> array<Fetched, FETCHES> {
  const COLUMNS_V = COLUMNS / UNIT_KV;
  let d = index % COLUMNS_V * UNIT_KV * 4u;
  var result: array<Fetched, FETCHES>;
  for (var i = 0u; i < FETCHES; i++) {
    let row = (i * THREADS + index) / COLUMNS_V;
    let token = key + row / SLOTS * VEC4S + slot + row % SLOTS;
    if d < v_head_dim() && token < tile.end {
      result[i] = fetch_v(tile.v + token * params.v.w + d, v_head_dim() - d);
    }
  }
  return result;
}

fn stage_values(index: u32, fetched: array<Fetched, FETCHES>) {
  let all = fetched;
  for (var i = 0u; i < FETCHES; i++) {
    let numbers = numbers_kv(all[i]);
    for (var u = 0u; u < UNIT_KV; u++) {
      sh[KEYS_AT + (i * THREADS + index) * UNIT_KV + u] = numbers[u];
    }
  }
}
