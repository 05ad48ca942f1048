// Rows of f16 in words, which begin and end at any element: whole words, and up to two edges, numbers that share
// a word with those of another row.
//
// Such a word is written by the workgroup that has both rows: each leaves its number in workgroup memory.
// Workgroups take an even number of rows, so none shares a word with another. Elements are counted from the
// lower half of the word that the first of all is in, whose number in y is params.y_offset.
//
// needs: V = u32, WIDTH = 2, y, params.rows_per_group, params.rows_before, params.y_offset

// A row's first whole word and how many it has, and whether there are a head before them and a tail behind.
struct Row {
  first: u32,
  vectors: u32,
  head: bool,
  tail: bool,
}

// Of each row of the workgroup: its head and its tail.
var<workgroup> sh_edges: array<f32, 512>;

// The row of `length` elements from `start` on.
fn row_at(start: u32, length: u32, is_there: bool) -> Row {
  let skip = start % 2u;
  let rest = length - skip;
  return Row((start + 1u) / 2u, select(0u, rest / 2u, is_there), is_there && skip == 1u, is_there && rest % 2u == 1u);
}

// Rows that a row group takes one after the other.
fn rows_per_group() -> u32 {
  return params.rows_per_group;
}

// Rows by which the workgroups begin before the first, and the element that this begins with: one, if that
// is the upper half of its word.
fn rows_before() -> u32 {
  return params.rows_before;
}

// Whether a row has a head (side 0) or a tail (side 1).
fn has_edge(row: Row, side: u32) -> bool {
  return (side == 0u && row.head) || (side == 1u && row.tail);
}

// The word of an edge.
fn edge_at(row: Row, side: u32) -> u32 {
  return select(row.first - 1u, row.first + row.vectors, side == 1u);
}

fn edge_of(v: V, side: u32) -> f32 {
  let numbers = unpack2x16float(v);
  return select(numbers.y, numbers.x, side == 1u);
}

// Keeps the result of an edge for `store_seams`. `slot` is the row's number in its workgroup.
fn keep_edge(slot: u32, side: u32, number: f32) {
  sh_edges[2u * slot + side] = number;
}

// Stores the words that are shared by the `count` rows from `first` on, of all `rows`. The first element of
// all and the last share a word with memory that isn't the tensor's. The whole workgroup has to come here.
fn store_seams(lane: u32, first: u32, count: u32, rows: u32, length: u32) {
  workgroupBarrier();
  let number = first + lane;
  if lane >= count || number >= rows {
    return;
  }
  let start = rows_before() + number * length;
  let row = row_at(start, length, true);
  if row.head {
    let at = params.y_offset + edge_at(row, 0u);
    let head = sh_edges[2u * lane];
    if number == 0u {
      y[at] = (y[at] & 0xffffu) | pack2x16float(vec2<f32>(0.0, head));
    } else {
      y[at] = pack2x16float(vec2<f32>(sh_edges[2u * max(lane, 1u) - 1u], head));
    }
  }
  if row.tail && number + 1u == rows {
    let at = params.y_offset + edge_at(row, 1u);
    y[at] = (y[at] & 0xffff0000u) | pack2x16float(vec2<f32>(sh_edges[2u * lane + 1u], 0.0));
  }
}
