// Vectors of x that an invocation fetches before it needs the first of them; in place they are y's.
//
// needs: IN_PLACE, the vec of a vector, the bindings x and y

// Vectors of an invocation.
const AHEAD = 4u;

fn fetch(i: u32) -> V {
  if IN_PLACE == 1u {
    return y[params.y_offset + i];
  }
  return x[params.x_offset + i];
}

// The vector `first` and those that follow it, each 256 behind the one before; of those beyond the last, the last.
fn fetch_ahead(first: u32) -> array<V, AHEAD> {
  var vectors: array<V, AHEAD>;
  for (var j = 0u; j < AHEAD; j++) {
    vectors[j] = fetch(min(first + j * 256u, params.vectors - 1u));
  }
  return vectors;
}
