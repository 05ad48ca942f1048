// Copies f16 matrices to where every row begins at a multiple of eight elements, with 0 after what a row or the matrix
// has. A workgroup writes WORDS times as many pairs of elements as it has invocations, neighbours adjacent ones.
//
// The matrices may begin at any element: whole words are read, and shifted by half a word where that is needed.

struct Params {
  rows: u32,
  columns: u32,
  // Rows of the copy, and pairs of elements in each.
  rows_out: u32,
  pairs: u32,
  total: u32,
  offset: u32,
  ld: u32,
  batch: u32,
  // The last word of the matrices.
  last: u32,
}

@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> packed: array<u32>;

const THREADS: u32 = 256u;
const WORDS: u32 = 4u;

// The pair of elements `i` of the copy.
fn pair(i: u32) -> u32 {
  let column = i % params.pairs * 2u;
  let line = i / params.pairs;
  let row = line % params.rows_out;
  if row >= params.rows || column >= params.columns {
    return 0u;
  }
  let first = params.offset + line / params.rows_out * params.batch + row * params.ld + column;
  let low = source[first / 2u];
  let high = source[min(first / 2u + 1u, params.last)];
  let both = select(low, (low >> 16u) | (high << 16u), first % 2u == 1u);
  return select(both & 0xffffu, both, column + 1u < params.columns);
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let first = flat_group(group, groups) * WORDS * THREADS + lane;
  for (var word = 0u; word < WORDS; word++) {
    let i = first + word * THREADS;
    if i < params.total {
      packed[i] = pair(i);
    }
  }
}
