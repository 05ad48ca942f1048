// Copies the matrices of one operand or of two to where every row begins at a multiple of 16 bytes, with 0
// between the end of a row or a matrix and that of the copy's. An invocation copies VECTORS vectors of 16
// bytes, its neighbours what follows them.
//
// The matrices may begin at any element: a vector is put together from the two that it lies in, moved by
// words of 32 bits, and by half a word where elements of f16 need that. `a` and `b` are bound by words, too.
//
// needs: PER_WORD (elements of a word: 1 of f32, 2 of f16), WHOLE (whether the last vectors of what is copied
// are there as a whole), lib/shifted_vector

const THREADS: u32 = 256u;
const VECTORS: u32 = 2u;

// What a workgroup copies of.
struct Operand {
  sizes: vec4<u32>,
  steps: vec4<u32>,
  ends: vec4<u32>,
  second: bool,
}

// Where a vector of the copy is read, and how many elements from there on its row has.
struct Place {
  first: u32,
  count: u32,
}

fn place_of(operand: Operand, i: u32) -> Place {
  let line = i / operand.sizes.w;
  let column = i % operand.sizes.w * 4u * PER_WORD;
  let row = line % operand.sizes.z;
  let start = operand.steps.y + line / operand.sizes.z * operand.steps.w + row * operand.steps.z;
  return Place(start + column, select(0u, max(operand.sizes.y, column) - column, row < operand.sizes.x));
}

fn vector_at(operand: Operand, at: u32) -> vec4<u32> {
  let i = min(at, operand.ends.z);
  if WHOLE == 1u {
    if operand.second {
      return b[i];
    }
    return a[i];
  }
  let w = min(4u * i + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(operand.ends.w));
  if operand.second {
    return vec4<u32>(b_words[w.x], b_words[w.y], b_words[w.z], b_words[w.w]);
  }
  return vec4<u32>(a_words[w.x], a_words[w.y], a_words[w.z], a_words[w.w]);
}

// The elements of a place, of the vector that has its first and the one after it.
fn elements(place: Place, low: vec4<u32>, high: vec4<u32>) -> vec4<u32> {
  var v = shifted_vector(low, high, place.first * (2u / PER_WORD));
  if PER_WORD == 2u {
    v = select(v & vec4<u32>(0xffffu), v, vec4<u32>(1u, 3u, 5u, 7u) < vec4<u32>(place.count));
  }
  return select(vec4<u32>(), v, vec4<u32>(0u, 1u, 2u, 3u) * PER_WORD < vec4<u32>(place.count));
}

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) index: u32) {
  const EACH = THREADS * VECTORS;
  let flat = flat_group(workgroup.id, workgroup.count);
  let of_first = (params.ends[0].x + EACH - 1u) / EACH;
  let second = flat >= of_first;
  let f = select(0u, 1u, second);
  let operand = Operand(params.sizes[f], params.steps[f], params.ends[f], second);
  let start = (flat - f * of_first) * EACH + index;
  // All are read before one is written: a read waits for the writes before it.
  var places: array<Place, VECTORS>;
  var low: array<vec4<u32>, VECTORS>;
  var high: array<vec4<u32>, VECTORS>;
  for (var i = 0u; i < VECTORS; i++) {
    let place = place_of(operand, start + i * THREADS);
    let at = place.first / PER_WORD / 4u;
    places[i] = place;
    low[i] = vector_at(operand, at);
    high[i] = vector_at(operand, at + 1u);
  }
  for (var i = 0u; i < VECTORS; i++) {
    let at = start + i * THREADS;
    if at < operand.ends.x {
      let to = at / operand.sizes.w * operand.steps.x + at % operand.sizes.w;
      packed[operand.ends.y + to] = elements(places[i], low[i], high[i]);
    }
  }
}
