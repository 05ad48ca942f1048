// Rotates the queries of each row of qkv in place, (x, y) → (x·cos − y·sin, x·sin + y·cos) for each pair of elements by
// the angle of the row's position, and writes its keys, rotated too, and values to row indices[i] of a cache. Elements
// from rotary_dim on stay, or are copied. One invocation for each pair, and for each copied number. Of equal indices, the
// last one wins.
//
// needs: T, C (elements of qkv and cache), INTERLEAVED, lib/grid, lib/indexed_row, lib/rotary_pairs

// A pair of the head that starts at `start`, of row i.
fn pair_of(i: u32, start: u32, pair: u32) -> vec2<f32> {
  let places = places_of(pair);
  return rotated(i, pair, vec2<f32>(f32(qkv[start + places.x]), f32(qkv[start + places.y])));
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let start = flat_group(workgroup.id, workgroup.count) * 256u;
  if start >= params.total {
    return;
  }
  let first_row = start / params.row_work;
  let last_row = min(start + 255u, params.total - 1u) / params.row_work;
  find_replaced(first_row, last_row, lane, 256u);

  let number = start + lane;
  if number >= params.total {
    return;
  }
  let i = number / params.row_work;
  var work = number - i * params.row_work;
  let row = params.qkv + i * params.qkv_ld;
  if work < params.query_work {
    let head = work / params.pairs;
    let pair = work - head * params.pairs;
    let query = row + head * params.head_dim;
    let turned = pair_of(i, query, pair);
    let places = places_of(pair);
    qkv[query + places.x] = T(turned.x);
    qkv[query + places.y] = T(turned.y);
    return;
  }
  work -= params.query_work;

  let place = indexed_row(i, i - first_row);
  if place >= params.rows {
    return;
  }
  let keys = row + params.heads * params.head_dim;
  let cached = params.cache + place * params.cache_ld;
  if work >= params.key_work {
    let value = params.kv_heads * params.head_dim + work - params.key_work;
    cache[cached + value] = C(qkv[keys + value]);
    return;
  }
  let of_key = params.head_dim - params.pairs;
  let head = work / of_key;
  let part = work - head * of_key;
  let first = head * params.head_dim;
  if part >= params.pairs {
    let copied = first + part + params.pairs;
    cache[cached + copied] = C(qkv[keys + copied]);
    return;
  }
  let turned = pair_of(i, keys + first, part);
  let places = places_of(part);
  cache[cached + first + places.x] = C(turned.x);
  cache[cached + first + places.y] = C(turned.y);
}
