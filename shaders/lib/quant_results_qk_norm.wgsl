// Elements of one row that is queries, keys and values, on their way to C and to a cache, with QK-norm, a norm of each head of
// queries and keys: as tokens/rope_append_normed makes them of C.
//
// A head has more columns than a workgroup makes: the last workgroup to be done with those of a head normalises and rotates it.
//
// needs: TC, KV, cosines, sines, query_norm, key_norm, cache, fixup, lib/quant_product, lib/quant_qkv, lib/last_workgroup, and of the
// parameters eps, cache_rows, cache, cache_ld and terms, whose bit 4 says that pairs lie half of the rotated elements apart rather than
// side by side, and whose bits 16 to 23 and 24 to 31 are the first weights of the norms

// Whether an element is made with its neighbour's sum.
const PAIRED = false;

// Elements of a head, at most.
const MOST_ELEMENTS: u32 = 1024u;

// A head before its norm.
var<workgroup> sh_head: array<vec4<f32>, MOST_ELEMENTS / 4u>;

// The row of the cache that a value goes to.
alias Ahead = u32;

// What an element needs besides the product, which may be on its way while that is made.
fn read_ahead(row: u32, column: u32) -> Ahead {
  if column < first_value() {
    return params.cache_rows;
  }
  return place_in_cache(row);
}

// Writes the element at (row, column), made of the sum there: of a query or key to where the last workgroup reads it, and all but
// queries to C.
fn finish_element(sum: f32, neighbour: f32, ahead: Ahead, row: u32, column: u32) {
  let product = TC(biased(sum, column));
  if column >= first_key() {
    c[params.c + column] = product;
  }
  if column < first_value() {
    atomicStore(&fixup[COUNTERS + column], bitcast<u32>(f32(product)));
  } else if ahead < params.cache_rows {
    cache[params.cache + ahead * params.cache_ld + column - first_key()] = KV(product);
  }
}

// The number of the pair by which an element of a head is rotated, the place of its other element, and which of the two it is.
struct RotatedPair {
  number: u32,
  other: u32,
  is_second: bool,
}

fn rotated_pair(i: u32) -> RotatedPair {
  if (params.terms & 16u) == 0u {
    return RotatedPair(i / 2u, i ^ 1u, (i & 1u) == 1u);
  }
  let pairs = rotated_pairs();
  if i < pairs {
    return RotatedPair(i, i + pairs, false);
  }
  return RotatedPair(i - pairs, i - pairs, true);
}

fn is_rotated(i: u32) -> bool {
  return i < 2u * rotated_pairs();
}

// What an element of a head needs besides the head: its weight and that of the other one of its pair, the angle if it is rotated, and
// the row of the cache that a key goes to.
struct HeadAhead {
  weights: vec2<f32>,
  cosine: f32,
  sine: f32,
  place: u32,
}

fn weight_of(is_query: bool, i: u32) -> f32 {
  if is_query {
    return f32(query_norm[((params.terms >> 16u) & 255u) + i]);
  }
  return f32(key_norm[(params.terms >> 24u) + i]);
}

// What the element i of the head that a column is of needs, which may be on its way while the product is made.
fn read_head_ahead(column: u32, i: u32) -> HeadAhead {
  var ahead = HeadAhead(vec2<f32>(), 1.0, 0.0, params.cache_rows);
  if column >= first_value() || i >= head_dim() {
    return ahead;
  }
  let is_query = column < first_key();
  ahead.weights.x = weight_of(is_query, i);
  if is_rotated(i) {
    let pair = rotated_pair(i);
    let angle = angle_of(0u, pair.number);
    ahead.weights.y = weight_of(is_query, pair.other);
    ahead.cosine = cosine_of(angle);
    ahead.sine = sine_of(angle);
  }
  if !is_query {
    ahead.place = place_in_cache(0u);
  }
  return ahead;
}

// By what the elements of the head in workgroup memory are multiplied, besides their weights.
fn factor_of_head() -> f32 {
  var squares = vec4<f32>();
  for (var i = 0u; i < head_dim() / 4u; i++) {
    squares += sh_head[i] * sh_head[i];
  }
  return inverseSqrt(dot(squares, vec4<f32>(1.0)) / f32(head_dim()) + params.eps);
}

// Writes an element of the head in workgroup memory: of a query to C, of a key to the cache, with the value behind it if that is
// in C already.
fn finish_normed(column: u32, factor: f32, ahead: HeadAhead) {
  let i = column % head_dim();
  var value = factor * sh_head[i / 4u][i % 4u] * ahead.weights.x;
  if is_rotated(i) {
    let pair = rotated_pair(i);
    let other = factor * sh_head[pair.other / 4u][pair.other % 4u] * ahead.weights.y;
    // (x, y) → (x·cos − y·sin, x·sin + y·cos)
    value = value * ahead.cosine + select(-other, other, pair.is_second) * ahead.sine;
  }
  let at = params.c + column;
  if column < first_key() {
    c[at] = TC(value);
  } else if ahead.place < params.cache_rows {
    let cached = params.cache + ahead.place * params.cache_ld + column - first_key();
    cache[cached] = KV(value);
    if has_values_before() {
      cache[cached + params.kv_width] = KV(c[at + params.kv_width]);
    }
  }
}

// Behind a tile of so many columns, the first of which is `column`: normalises the head that they are of, if all others of it are
// done. `ahead` is what the element with the invocation's own index needs.
fn finish_workgroup(column: u32, columns: u32, index: u32, threads: u32, ahead: HeadAhead) {
  if column >= first_value() {
    return;
  }
  let head = column / head_dim();
  if !is_last_workgroup(head, head_dim() / columns, index) {
    return;
  }
  let first = head * head_dim();
  for (var i = index; i < head_dim(); i += threads) {
    sh_head[i / 4u][i % 4u] = bitcast<f32>(atomicLoad(&fixup[COUNTERS + first + i]));
  }
  workgroupBarrier();
  let factor = factor_of_head();
  if index < head_dim() {
    finish_normed(first + index, factor, ahead);
  }
  for (var i = index + threads; i < head_dim(); i += threads) {
    finish_normed(first + i, factor, read_head_ahead(column, i));
  }
}
