// Copies matrices to where every row begins at a multiple of 16 bytes, with 0 between the end of a row or a matrix and
// that of the copy's. An invocation copies VECTORS vectors of 16 bytes, its neighbours what follows them.
//
// The matrices may begin at any element: a vector is put together from the two that it lies in, moved by words of 32
// bits, and by half a word where elements of f16 need that.
//
// needs: PER_WORD (elements of a word: 1 of f32, 2 of f16), WHOLE (whether the source's last vector is there as a whole)

struct Params {
  rows: u32,
  columns: u32,
  // Rows of the copy of a matrix, the vectors of each that are written, and the vectors from one to the next.
  rows_out: u32,
  vectors: u32,
  ld_out: u32,
  // Vectors to be written, of all matrices together.
  total: u32,
  offset: u32,
  ld: u32,
  batch: u32,
  // The last vector of the matrices, and their last word.
  last: u32,
  last_word: u32,
}

@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
// The same by words.
@group(0) @binding(1) var<storage, read> words: array<u32>;
@group(0) @binding(2) var<storage, read_write> packed: array<vec4<u32>>;

const THREADS: u32 = 256u;
const VECTORS: u32 = 2u;

// Where a vector of the copy is read, and how many elements from there on its row has.
struct Place {
  first: u32,
  count: u32,
}

fn place_of(i: u32) -> Place {
  let line = i / params.vectors;
  let column = i % params.vectors * 4u * PER_WORD;
  let row = line % params.rows_out;
  let start = params.offset + line / params.rows_out * params.batch + row * params.ld;
  return Place(start + column, select(0u, max(params.columns, column) - column, row < params.rows));
}

fn vector_at(at: u32) -> vec4<u32> {
  let i = min(at, params.last);
  if WHOLE == 1u {
    return source[i];
  }
  let w = min(4u * i + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(params.last_word));
  return vec4<u32>(words[w.x], words[w.y], words[w.z], words[w.w]);
}

// The elements of a place, of the vector that has its first and the one after it.
fn elements(place: Place, low: vec4<u32>, high: vec4<u32>) -> vec4<u32> {
  let word = place.first / PER_WORD;
  let far = word % 4u >= 2u;
  let from_even = select(low, vec4<u32>(low.zw, high.xy), far);
  let rest = select(high.xy, high.zw, far);
  let odd = word % 2u == 1u;
  var v = select(from_even, vec4<u32>(from_even.yzw, rest.x), odd);
  if PER_WORD == 2u {
    let next = vec4<u32>(v.yzw, select(rest.x, rest.y, odd));
    v = select(v, (v >> vec4<u32>(16u)) | (next << vec4<u32>(16u)), place.first % 2u == 1u);
    v = select(v & vec4<u32>(0xffffu), v, vec4<u32>(1u, 3u, 5u, 7u) < vec4<u32>(place.count));
  }
  return select(vec4<u32>(), v, vec4<u32>(0u, 1u, 2u, 3u) * PER_WORD < vec4<u32>(place.count));
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let start = flat_group(group, groups) * THREADS * VECTORS + index;
  // All are read before one is written: a read waits for the writes before it.
  var places: array<Place, VECTORS>;
  var low: array<vec4<u32>, VECTORS>;
  var high: array<vec4<u32>, VECTORS>;
  for (var i = 0u; i < VECTORS; i++) {
    let place = place_of(start + i * THREADS);
    let at = place.first / PER_WORD / 4u;
    places[i] = place;
    low[i] = vector_at(at);
    high[i] = vector_at(at + 1u);
  }
  for (var i = 0u; i < VECTORS; i++) {
    let at = start + i * THREADS;
    if at < params.total {
      let to = at / params.vectors * params.ld_out + at % params.vectors;
      packed[to] = elements(places[i], low[i], high[i]);
    }
  }
}
