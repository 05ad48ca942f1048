// Rows of whole vectors: each begins and ends with one.
//
// needs: WIDTH

// A row's first vector, counted from the tensor's, and how many it has: none if it isn't there.
struct Row {
  first: u32,
  vectors: u32,
}

// The row of `length` elements from `start` on.
fn row_at(start: u32, length: u32, is_there: bool) -> Row {
  return Row(start / WIDTH, select(0u, length / WIDTH, is_there));
}

// Rows that a row group takes one after the other.
fn rows_per_group() -> u32 {
  return 1u;
}

// Rows by which the workgroups begin before the first, and the element that this begins with.
fn rows_before() -> u32 {
  return 0u;
}

// No number shares a vector with another row.
fn has_edge(row: Row, side: u32) -> bool {
  return false;
}

fn edge_at(row: Row, side: u32) -> u32 {
  return 0u;
}

fn edge_of(v: V, side: u32) -> f32 {
  return 0.0;
}

fn keep_edge(slot: u32, side: u32, number: f32) {}

fn store_seams(lane: u32, first: u32, count: u32, rows: u32, length: u32) {}
