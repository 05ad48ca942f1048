// Elements of a product that is queries, keys and values, on their way to C and to a cache: as tokens/rope_append makes
// them of C. A pair has neighbouring columns, an even one first.
//
// needs: TC, KV, cosines, sines, cache, lib/quant_product, lib/quant_qkv, and of the parameters cache_rows, cache and cache_ld

// Whether an element is made with its neighbour's sum.
const PAIRED = true;

// The angle of an element that is rotated, and the row of the cache that a key or value goes to: from params.cache_rows on
// for none.
struct Ahead {
  is_rotated: bool,
  cosine: f32,
  sine: f32,
  place: u32,
  // The value behind a key.
  value: TC,
}

// What an element needs besides the product, which may be on its way while that is made.
fn read_ahead(row: u32, column: u32) -> Ahead {
  var ahead = Ahead(false, 1.0, 0.0, params.cache_rows, TC());
  let pair = column % head_dim() / 2u;
  if column < first_value() && pair < rotated_pairs() {
    let angle = angle_of(row, pair);
    ahead.is_rotated = true;
    ahead.cosine = cosine_of(angle);
    ahead.sine = sine_of(angle);
  }
  if column >= first_key() {
    ahead.place = place_in_cache(row);
    if has_values_before() {
      ahead.value = c[params.c + row * params.c_ld + column + params.kv_width];
    }
  }
  return ahead;
}

// Writes the element at (row, column), made of the sum there and its neighbour's.
fn finish_element(sum: f32, neighbour: f32, ahead: Ahead, row: u32, column: u32) {
  let product = TC(biased(sum, column));
  let other = f32(TC(biased(neighbour, column ^ 1u)));
  // (x, y) → (x·cos − y·sin, x·sin + y·cos)
  let across = select(-other, other, (column & 1u) == 1u);
  let rotated = f32(product) * ahead.cosine + across * ahead.sine;
  let value = select(f32(product), rotated, ahead.is_rotated);
  let at = params.c + row * params.c_ld + column;
  if column < first_key() {
    c[at] = TC(value);
    return;
  }
  c[at] = product;
  if ahead.place < params.cache_rows {
    let cached = params.cache + ahead.place * params.cache_ld + column - first_key();
    cache[cached] = KV(value);
    if has_values_before() {
      cache[cached + params.kv_width] = KV(ahead.value);
    }
  }
}
