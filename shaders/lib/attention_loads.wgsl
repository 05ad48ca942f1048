// A lane's elements of a sequence's keys and values, `start` being that of its head in what attention's readers count: 0
// where a key's block isn't in the pool.
//
// needs: lib/attention_places, lib/attention_rows, one of attention's readers

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

// A lane's elements of four keys: `key` and those that follow it at a distance of `slots` each. In place of a key behind
// `last`, that is read.
fn fetch_keys(start: u32, batch: u32, key: u32, slots: u32, last: u32, left: u32) -> Four {
  return Four(
    load_key(start, batch, min(key, last), left),
    load_key(start, batch, min(key + slots, last), left),
    load_key(start, batch, min(key + 2u * slots, last), left),
    load_key(start, batch, min(key + 3u * slots, last), left),
  );
}

// A lane's elements of the values of four keys, chosen as by fetch_keys.
fn fetch_values(start: u32, batch: u32, key: u32, slots: u32, last: u32, left: u32) -> Four {
  return Four(
    load_value(start, batch, min(key, last), left),
    load_value(start, batch, min(key + slots, last), left),
    load_value(start, batch, min(key + 2u * slots, last), left),
    load_value(start, batch, min(key + 3u * slots, last), left),
  );
}
