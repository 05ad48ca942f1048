// Entries of sorts: a key and an index.

fn precedes(a: vec2<u32>, b: vec2<u32>) -> bool {
  return a.x < b.x || (a.x == b.x && a.y < b.y);
}

// Writes entry i, or its index.
fn store(start: u32, i: u32, entry: vec2<u32>) {
  if INDICES == 1u {
    y[start + i] = entry.y;
  } else {
    y[start + 2u * i] = entry.x;
    y[start + 2u * i + 1u] = entry.y;
  }
}
