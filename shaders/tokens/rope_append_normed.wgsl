// Normalises the queries of each row of qkv and its keys by their root mean square, x → x / √(mean(x²) + eps) · w for each head,
// and then does what tokens/rope_append does: queries are rotated where they are, and rotated keys and values go to row indices[i] of
// a cache. Of equal indices, the last one wins.
//
// A workgroup has a head of a row: of queries but where another launch makes those, then of keys with the values behind it, of which
// there are none where nothing is appended.
//
// needs: T, C (elements of qkv and cache), INTERLEAVED, lib/grid, lib/indexed_row, lib/rotary_pairs

const THREADS: u32 = 64u;

// Sums of squares.
var<workgroup> squares: array<f32, THREADS>;

// By what the elements of the head that starts at `head` are multiplied, besides their weights.
fn factor_of(head: u32, lane: u32) -> f32 {
  var sum = 0.0;
  for (var i = lane; i < params.head_dim; i += THREADS) {
    let x = f32(qkv[head + i]);
    sum += x * x;
  }
  squares[lane] = sum;
  for (var half = THREADS / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if lane < half {
      squares[lane] += squares[lane + half];
    }
  }
  workgroupBarrier();
  return inverseSqrt(squares[0] / f32(params.head_dim) + params.eps);
}

fn weight_of(is_query: bool, i: u32) -> f32 {
  if is_query {
    return f32(query_norm[params.query_norm + i]);
  }
  return f32(key_norm[params.key_norm + i]);
}

// Writes an element of a head of queries, or of one of keys to the cache.
fn put(is_query: bool, at: u32, x: f32) {
  if is_query {
    qkv[at] = T(x);
  } else {
    cache[at] = C(x);
  }
}

// Writes a head of queries, or of keys if its row has a place in the cache.
fn put_head(is_query: bool, source: u32, to: u32, row: u32, factor: f32, lane: u32) {
  for (var pair = lane; pair < params.pairs; pair += THREADS) {
    let places = places_of(pair);
    let weights = vec2<f32>(weight_of(is_query, places.x), weight_of(is_query, places.y));
    let numbers = vec2<f32>(f32(qkv[source + places.x]), f32(qkv[source + places.y])) * factor * weights;
    let turned = rotated(row, pair, numbers);
    put(is_query, to + places.x, turned.x);
    put(is_query, to + places.y, turned.y);
  }
  for (var i = 2u * params.pairs + lane; i < params.head_dim; i += THREADS) {
    put(is_query, to + i, f32(qkv[source + i]) * factor * weight_of(is_query, i));
  }
}

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let number = flat_group(workgroup.id, workgroup.count);
  let queries = params.row_queries;
  let heads = queries + params.kv_heads;
  if number >= params.total {
    return;
  }
  let row = number / heads;
  let head = number % heads;
  let start = params.qkv + row * params.qkv_ld;
  if head < queries {
    let query = start + head * params.head_dim;
    put_head(true, query, query, row, factor_of(query, lane), lane);
    return;
  }
  find_replaced(row, row, lane, THREADS);
  let place = indexed_row(row, 0u);
  let is_kept = place < params.rows;
  let of_key = head - queries;
  let key = start + (params.heads + of_key) * params.head_dim;
  let value = key + params.kv_heads * params.head_dim;
  let to = params.cache + place * params.cache_ld + of_key * params.head_dim;
  let factor = factor_of(key, lane);
  if is_kept {
    put_head(false, key, to, row, factor, lane);
    for (var i = lane; i < params.head_dim; i += THREADS) {
      cache[to + params.kv_heads * params.head_dim + i] = C(qkv[value + i]);
    }
  }
}
