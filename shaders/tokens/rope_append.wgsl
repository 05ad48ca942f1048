// Rotates the queries of each row of qkv in place, (x, y) → (x·cos − y·sin, x·sin + y·cos) for each pair of elements by
// the angle of the row's position, and writes its keys, rotated too, and values to row indices[i] of a cache. Elements
// from rotary_dim on stay, or are copied. One invocation for each pair, and for each copied number. Of equal indices, the
// last one wins.
//
// needs: T, C (elements of qkv and cache), INTERLEAVED, lib/grid, lib/indexed_row

// The first and second element of a pair in a vector.
fn places_of(pair: u32) -> vec2<u32> {
  if INTERLEAVED == 1u {
    return vec2<u32>(2u * pair, 2u * pair + 1u);
  }
  return vec2<u32>(pair, pair + params.pairs);
}

// A pair of the vector that starts at x, rotated by the angle of row i.
fn rotated(i: u32, x: u32, pair: u32) -> vec2<f32> {
  let position = min(positions[params.positions + i], params.max_position - 1u);
  let angle = position * params.pairs + pair;
  let c = cosines[params.cos + angle];
  let s = sines[params.sin + angle];
  let places = places_of(pair);
  let first = f32(qkv[x + places.x]);
  let second = f32(qkv[x + places.y]);
  return vec2<f32>(first * c - second * s, first * s + second * c);
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
    let turned = rotated(i, query, pair);
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
  let turned = rotated(i, keys + first, part);
  let places = places_of(part);
  cache[cached + first + places.x] = C(turned.x);
  cache[cached + first + places.y] = C(turned.y);
}
