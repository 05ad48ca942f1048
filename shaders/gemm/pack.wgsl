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

// The word of a row from its element `column` on: the row has `columns` elements, the first at `start`.
fn word_of(start: u32, columns: u32, column: u32) -> u32 {
  let first = start + column;
  var value = source[min(first / PER_WORD, params.last)];
  if PER_WORD == 2u {
    let next = source[min(first / 2u + 1u, params.last)];
    value = select(value, (value >> 16u) | (next << 16u), first % 2u == 1u);
    value = select(value & 0xffffu, value, column + 1u < columns);
  }
  return select(0u, value, column < columns);
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
  let columns = select(0u, params.columns, row < params.rows);
  // All are read before one is written: a read waits for the writes before it.
  var values: array<u32, WORDS>;
  for (var i = 0u; i < WORDS; i++) {
    values[i] = word_of(start, columns, (first + i * LANES) * PER_WORD);
  }
  for (var i = 0u; i < WORDS; i++) {
    let word = first + i * LANES;
    if word < params.words {
      packed[line * params.words + word] = values[i];
    }
  }
}
