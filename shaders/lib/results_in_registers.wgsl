// Results of gemm/cooperative of f16 that are made in registers, of elements of fragments
// (lib/fragment_elements), and written in vectors of eight.
//
// A row of a fragment is spread over four invocations. They exchange what they have of two rows, so that each
// gets eight adjacent results: those of row lane / 4 or of the eighth below, in the left or in the right half
// of the fragment. Where rows of C begin anywhere, a vector of memory has some of the results before these,
// too, which an invocation gets from a neighbour or from the fragment before. What is written of a row ends
// with parts of vectors then.
//
// needs: ACTIVATION, BINDING_C (of c), lib/matmul, lib/fragments, lib/fragment_elements, lib/shifted_vector,
// Tile

@group(0) @binding(BINDING_C + 1u) var<storage, read_write> c_words: array<u32>;
@group(0) @binding(BINDING_C + 2u) var<storage, read_write> c8: array<vec4<u32>>;

// What a subgroup makes of C.
struct Part {
  // Where C's matrix begins, and the part in it.
  c: u32,
  origin: vec2<u32>,
  lane: u32,
  // Whether an invocation has the right half of fragments.
  right: bool,
  // Whether all of the workgroup's tile is in C, and whether its rows begin at vectors too.
  whole: bool,
  straight: bool,
}

fn part_in_registers(tile: Tile, index: u32) -> Part {
  let lane = index % SUBGROUP;
  let whole = tile.row + TILE_M <= params.m && tile.column + TILE_N <= params.n;
  return Part(
    tile.c,
    vec2<u32>(tile.row, tile.column) + part_of(index / SUBGROUP),
    lane,
    lane % 2u == 1u,
    whole,
    whole && (tile.c | params.c_ld) % 8u == 0u,
  );
}

// The columns that an invocation has of the fragment `j` across, as they are or in C at least.
fn columns_of(part: Part, j: u32) -> vec4<u32> {
  let columns = part.origin.y + j * FRAGMENT + part.lane % 4u * 2u + vec4<u32>(0u, 1u, 8u, 9u);
  return min(columns, vec4<u32>(params.n - 1u));
}

// The bias of the columns of fragment `j`, if columns have one.
fn bias_of(part: Part, j: u32) -> vec4<f32> {
  if params.bias != 1u {
    return vec4<f32>();
  }
  let at = params.bias_offset + columns_of(part, j);
  return vec4<f32>(f32(bias[at.x]), f32(bias[at.y]), f32(bias[at.z]), f32(bias[at.w]));
}

fn scaled(sums: Elements, bias: vec4<f32>) -> Elements {
  return Elements(params.alpha * sums.low + bias, params.alpha * sums.high + bias);
}

// Whether there is more to be added than a bias of columns.
fn has_more() -> bool {
  return params.bias == 2u || params.accumulate == 1u;
}

fn with_more(part: Part, i: u32, j: u32, v: Elements) -> Elements {
  let row = part.origin.x + i * FRAGMENT + part.lane / 4u;
  let columns = columns_of(part, j);
  return Elements(v.low + more(part, row, columns), v.high + more(part, row + FRAGMENT / 2u, columns));
}

fn more(part: Part, place: u32, columns: vec4<u32>) -> vec4<f32> {
  let row = min(place, params.m - 1u);
  var v = vec4<f32>();
  if params.accumulate == 1u {
    let at = part.c + row * params.c_ld + columns;
    v = params.beta * vec4<f32>(f32(c[at.x]), f32(c[at.y]), f32(c[at.z]), f32(c[at.w]));
  }
  if params.bias == 2u {
    v += f32(bias[params.bias_offset + row]);
  }
  return v;
}

// An invocation's eight adjacent results of a fragment.
fn results(part: Part, v: Elements) -> vec4<u32> {
  return exchanged(part.lane, vec4<u32>(results_of_four(v.low), results_of_four(v.high)));
}

fn results_of_four(v: vec4<f32>) -> vec2<u32> {
  return vec2<u32>(
    pack2x16float(vec2<f32>(activate(ACTIVATION, v.x), activate(ACTIVATION, v.y))),
    pack2x16float(vec2<f32>(activate(ACTIVATION, v.z), activate(ACTIVATION, v.w))),
  );
}

// Where an invocation's results of a row of fragments begin.
struct Row {
  at: u32,
  // How far that is from the beginning of a vector in memory.
  shift: u32,
  // How many elements C has of the row from that beginning on.
  room: u32,
}

fn row_of(part: Part, i: u32) -> Row {
  let row = part.origin.x + i * FRAGMENT + part.lane / 4u + part.lane / 2u % 2u * (FRAGMENT / 2u);
  let column = part.origin.y + select(0u, FRAGMENT / 2u, part.right);
  let at = part.c + row * params.c_ld + column;
  let shift = at % 8u;
  return Row(at, shift, select(0u, max(params.n + shift, column) - column, row < params.m));
}

// Writes the vector of the fragment `j` across.
fn write_vector(row: Row, j: u32, v: vec4<u32>) {
  c8[row.at / 8u + j * (FRAGMENT / 8u)] = v;
}

// The right half of a fragment for the invocation of the left half, and the other way round.
fn passed_on(v: vec4<u32>) -> vec4<u32> {
  return subgroupShuffleXor(v, 1u);
}

// The vector of memory in which the results `v` begin, after `before`.
fn begun(row: Row, before: vec4<u32>, v: vec4<u32>) -> vec4<u32> {
  return select(shifted_vector(before, v, 8u - row.shift), v, row.shift == 0u);
}

// The vector of memory in which the last results end.
fn ended(row: Row, last: vec4<u32>) -> vec4<u32> {
  return shifted_vector(last, last, 8u - row.shift);
}

// Writes the vectors at both ends of the part's row, of so many fragments: of the first one what lies in the
// row, and what is left of the last results.
fn write_ends(part: Part, row: Row, columns: u32, first: vec4<u32>, last: vec4<u32>) {
  let right = part.right;
  if right {
    write_vector(row, 0u, first);
  }
  let further = select(0u, columns * FRAGMENT - 8u, right);
  write_some(row, further, select(first, last, right), select(row.shift, 0u, right), select(8u, row.shift, right));
}

// Writes what C has of the vector of the fragment `j` across.
fn write_inside(part: Part, row: Row, j: u32, v: vec4<u32>) {
  let begin = select(row.shift, 0u, part.right || j > 0u);
  let before = j * FRAGMENT;
  write_some(row, before, v, begin, min(max(row.room, before) - before, 8u));
}

// Writes what C has of the vector in which the last of `columns` fragments ends.
fn write_end_inside(part: Part, row: Row, columns: u32, v: vec4<u32>) {
  let before = columns * FRAGMENT - 8u;
  if part.right {
    write_some(row, before, v, 0u, min(max(row.room, before) - before, row.shift));
  }
}

// Writes the elements from `begin` to `end` of the vector that lies `further` elements after the row's first.
fn write_some(row: Row, further: u32, v: vec4<u32>, begin: u32, end: u32) {
  let at = row.at - row.shift + further;
  if begin == 0u && end == 8u {
    c8[at / 8u] = v;
  } else if begin < end {
    let word = at / 2u;
    if begin == 0u && end >= 2u { c_words[word] = v.x; }
    if begin <= 2u && end >= 4u { c_words[word + 1u] = v.y; }
    if begin <= 4u && end >= 6u { c_words[word + 2u] = v.z; }
    if begin <= 6u && end == 8u { c_words[word + 3u] = v.w; }
    if begin % 2u == 1u { c[at + begin] = element_of(v, begin); }
    if end % 2u == 1u { c[at + end - 1u] = element_of(v, end - 1u); }
  }
}

fn element_of(v: vec4<u32>, i: u32) -> f16 {
  let pair = select(v.xy, v.zw, i >= 4u);
  let word = select(pair.x, pair.y, i % 4u >= 2u);
  return f16(unpack2x16float(word >> (i % 2u * 16u)).x);
}
