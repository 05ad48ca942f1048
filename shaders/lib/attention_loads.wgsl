// A lane's elements of a sequence's keys and values, `start` being that of its head in what attention's readers count: 0
// where a key's block isn't in the pool.
//
// needs: lib/attention_places, one of attention's readers

fn load_key(start: u32, batch: u32, key: u32, left: u32) -> Fetched {
  if PAGED == 0u {
    return load_k(start + key * kv_step(params.k.w), left);
  }
  let at = key_offset(batch, key, params.k);
  var words = Fetched();
  if at != OUTSIDE {
    words = load_k(start + kv_step(at), left);
  }
  return words;
}

fn load_value(start: u32, batch: u32, key: u32, left: u32) -> Fetched {
  if PAGED == 0u {
    return load_v(start + key * kv_step(params.v.w), left);
  }
  let at = key_offset(batch, key, params.v);
  var words = Fetched();
  if at != OUTSIDE {
    words = load_v(start + kv_step(at), left);
  }
  return words;
}
