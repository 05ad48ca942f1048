// Copies matrices to where every row begins at a multiple of 16 bytes, with 0 after what a row or the matrix has.
// Elements are moved in words of 32 bits, one of f32 or PER_WORD of f16. A row is shared by LANES neighbouring
// invocations or by several workgroups; each copies WORDS words of it.
//
// The matrices may begin at any element: whole words are read, and shifted by half a word where that is needed.
//
// needs: PER_WORD, LANES (a power of two)

struct Params {
  rows: u32,
  columns: u32,
  // Rows of the copy, of all matrices together, and the words of each.
  rows_out: u32,
  lines: u32,
  words: u32,
  // Parts of a row, each of LANES · WORDS words.
  parts: u32,
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

// The word of the elements from `first` on, of which `count` are of the row.
fn elements(first: u32, count: u32) -> u32 {
  if PER_WORD == 1u {
    return source[first];
  }
  let low = source[first / 2u];
  let high = source[min(first / 2u + 1u, params.last)];
  let both = select(low, (low >> 16u) | (high << 16u), first % 2u == 1u);
  return select(both & 0xffffu, both, count > 1u);
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let flat = flat_group(group, groups);
  let line = flat / params.parts * (THREADS / LANES) + index / LANES;
  if line >= params.lines {
    return;
  }
  let row = line % params.rows_out;
  let start = params.offset + line / params.rows_out * params.batch + row * params.ld;
  let first = flat % params.parts * LANES * WORDS + index % LANES;
  for (var i = 0u; i < WORDS; i++) {
    let word = first + i * LANES;
    let column = word * PER_WORD;
    if word < params.words {
      var value = 0u;
      if row < params.rows && column < params.columns {
        value = elements(start + column, params.columns - column);
      }
      packed[line * params.words + word] = value;
    }
  }
}
