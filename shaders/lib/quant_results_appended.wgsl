// Elements of a product that is queries, keys and values, on their way to C and to a cache: as tokens/rope_append makes
// them of C. Values may be in C before, behind a product that is queries and keys. A pair has neighbouring columns, an even
// one first. Of equal indices, the last one wins.
//
// needs: TC, KV, cosines, sines, positions, indices, cache, lib/quant_product, and of the parameters kv_width (columns of
// keys), head (head_dim, and from bit 16 on the pairs of a head that are rotated), max_position, origins (the first cosine, sine,
// position and index, a byte each), cache_rows, cache and cache_ld

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

// Bit 3 of the parameter `terms`.
fn has_values_before() -> bool {
  return (params.terms & 8u) != 0u;
}

fn first_key() -> u32 {
  return first_value() - params.kv_width;
}

fn first_value() -> u32 {
  return params.n - select(params.kv_width, 0u, has_values_before());
}

// Where the keys and values of a row go.
fn place_in_cache(row: u32) -> u32 {
  let first = params.origins >> 24u;
  let index = indices[first + row];
  for (var later = row + 1u; later < params.m; later++) {
    if indices[first + later] == index {
      return params.cache_rows;
    }
  }
  return index;
}

// What an element needs besides the product, which may be on its way while that is made.
fn read_ahead(row: u32, column: u32) -> Ahead {
  var ahead = Ahead(false, 1.0, 0.0, params.cache_rows, TC());
  let pair = column % (params.head & 0xffffu) / 2u;
  let pairs = params.head >> 16u;
  if column < first_value() && pair < pairs {
    let position = positions[((params.origins >> 16u) & 255u) + row];
    let angle = min(position, params.max_position - 1u) * pairs + pair;
    ahead.is_rotated = true;
    ahead.cosine = cosines[(params.origins & 255u) + angle];
    ahead.sine = sines[((params.origins >> 8u) & 255u) + angle];
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
