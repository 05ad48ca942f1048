// The columns of a product that is queries, keys and values, and what a rotation and a cache have to do with them. Values may be
// in C before, behind a product that is queries and keys. Of equal indices, the last one wins.
//
// needs: positions, indices, and of the parameters m, n, terms, kv_width (columns of keys), head (head_dim, and from bit 16 on the
// pairs of a head that are rotated), max_position, and origins (the first cosine, sine, position and index, a byte each)

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

fn head_dim() -> u32 {
  return params.head & 0xffffu;
}

fn rotated_pairs() -> u32 {
  return params.head >> 16u;
}

// The number of the angle by which a pair of a row's heads is rotated.
fn angle_of(row: u32, pair: u32) -> u32 {
  let position = positions[((params.origins >> 16u) & 255u) + row];
  return min(position, params.max_position - 1u) * rotated_pairs() + pair;
}

fn cosine_of(angle: u32) -> f32 {
  return cosines[(params.origins & 255u) + angle];
}

fn sine_of(angle: u32) -> f32 {
  return sines[((params.origins >> 8u) & 255u) + angle];
}

// The row of the cache that the keys and values of a row go to: from params.cache_rows on for none.
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
