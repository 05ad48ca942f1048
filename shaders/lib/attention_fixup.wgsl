// The outputs of rows whose keys are in pieces, put together by the workgroup that is the last of its tile: each workgroup
// writes its part to memory, and the last one does what attention/combine does, in the order of the pieces (the fix-up of
// split-K products).
//
// A part is a reference, a sum of weights, and a vector, of which every fourth elements are neighbours: invocations that
// have four elements each access it side by side.
//
// needs: T, THREADS, ROWS, lib/last_workgroup, lib/attention, lib/attention_pieces, lib/attention_seen, lib/attention_sinks,
// lib/attention_output

@group(0) @binding(6) var<storage, read_write> fixup: array<atomic<u32>>;
@group(0) @binding(7) var<storage, read_write> o: array<T>;

// Vectors of four in an output.
fn vec4s_of_part() -> u32 {
  return (v_head_dim() + 3u) / 4u;
}

// Words of a row's part.
fn part_length() -> u32 {
  return 4u * vec4s_of_part() + 2u;
}

// Rows that have room in a part of the tile.
fn part_rows() -> u32 {
  return min(ROWS, rows());
}

// A tile has a counter.
fn counter_of(group: vec3<u32>, groups: vec3<u32>) -> u32 {
  return group.z * groups.y + group.y;
}

// Where a row's part begins, of the piece that the workgroup works on.
fn own_part(group: vec3<u32>, groups: vec3<u32>, row: u32) -> u32 {
  let piece = counter_of(group, groups) * groups.x + group.x;
  return COUNTERS + (piece * part_rows() + row) * part_length();
}

// Writes an element of a row of the tile.
fn put_number(group: vec3<u32>, groups: vec3<u32>, row: u32, number: u32, sum: f32) {
  let at = own_part(group, groups, row) + 2u + number % 4u * vec4s_of_part() + number / 4u;
  atomicStore(&fixup[at], bitcast<u32>(sum));
}

// Writes four neighbouring elements of a row of the tile.
fn put_four(tile: Tile, group: vec3<u32>, groups: vec3<u32>, row: u32, four: u32, sum: vec4<f32>) {
  let at = own_part(group, groups, row) + 2u + four;
  let step = vec4s_of_part();
  let bits = bitcast<vec4<u32>>(sum);
  atomicStore(&fixup[at], bits.x);
  atomicStore(&fixup[at + step], bits.y);
  atomicStore(&fixup[at + 2u * step], bits.z);
  atomicStore(&fixup[at + 3u * step], bits.w);
}

// Writes what a row's vector is relative to, and its sum of weights.
fn put_state(tile: Tile, group: vec3<u32>, groups: vec3<u32>, row: u32, reference: f32, total: f32) {
  let at = own_part(group, groups, row);
  atomicStore(&fixup[at], bitcast<u32>(reference));
  atomicStore(&fixup[at + 1u], bitcast<u32>(total));
}

// What eight pieces have of a row: references, sums of weights, and four elements of each, which are on their way together
// and have names of their own, as drivers keep arrays elsewhere.
struct EightParts {
  low: vec4<f32>,
  high: vec4<f32>,
  low_totals: vec4<f32>,
  high_totals: vec4<f32>,
  a: vec4<f32>,
  b: vec4<f32>,
  c: vec4<f32>,
  d: vec4<f32>,
  e: vec4<f32>,
  f: vec4<f32>,
  g: vec4<f32>,
  h: vec4<f32>,
}

fn load_number(at: u32) -> f32 {
  return bitcast<f32>(atomicLoad(&fixup[at]));
}

// Numbers of four pieces.
fn load_pieces(places: vec4<u32>) -> vec4<f32> {
  return vec4<f32>(load_number(places.x), load_number(places.y), load_number(places.z), load_number(places.w));
}

// Four elements of a part.
fn load_four(at: u32) -> vec4<f32> {
  let step = vec4s_of_part();
  return load_pieces(at + 2u + vec4<u32>(0u, step, 2u * step, 3u * step));
}

// Of the pieces from `piece` on, each `step` words after the one before; of those beyond the last, the last.
fn load_eight(at: u32, four: u32, step: u32, piece: u32, last: u32) -> EightParts {
  let low = at + min(piece + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(last)) * step;
  let high = at + min(piece + vec4<u32>(4u, 5u, 6u, 7u), vec4<u32>(last)) * step;
  return EightParts(
    load_pieces(low),
    load_pieces(high),
    load_pieces(low + 1u),
    load_pieces(high + 1u),
    load_four(low.x + four),
    load_four(low.y + four),
    load_four(low.z + four),
    load_four(low.w + four),
    load_four(high.x + four),
    load_four(high.y + four),
    load_four(high.z + four),
    load_four(high.w + four),
  );
}

fn largest_of(x: vec4<f32>) -> f32 {
  return max(max(x.x, x.y), max(x.z, x.w));
}

// What pieces have of a row: a reference, and the sums of weights and of four weighted values that are relative to it.
struct Gathered {
  reference: f32,
  total: f32,
  sum: vec4<f32>,
}

// With what eight more pieces have, from `piece` on; those beyond the last have no weight. Without branches, so that nothing
// waits for another piece's.
fn gathered(before: Gathered, eight: EightParts, piece: u32, last: u32) -> Gathered {
  let reference = max(before.reference, max(largest_of(eight.low), largest_of(eight.high)));
  let unit = score_unit();
  let rescale = weight((before.reference - reference) * unit);
  let beyond = vec4<u32>(0u, 1u, 2u, 3u) + piece;
  let low = select(weights((eight.low - reference) * unit), vec4<f32>(), beyond > vec4<u32>(last));
  let high = select(weights((eight.high - reference) * unit), vec4<f32>(), beyond + 4u > vec4<u32>(last));
  let total = before.total * rescale + dot(eight.low_totals, low) + dot(eight.high_totals, high);
  let first = eight.a * low.x + eight.b * low.y + eight.c * low.z + eight.d * low.w;
  let second = eight.e * high.x + eight.f * high.y + eight.g * high.z + eight.h * high.w;
  return Gathered(reference, total, before.sum * rescale + first + second);
}

// Comes after the workgroup's own parts. The whole workgroup has to come here.
fn finish(tile: Tile, index: u32, group: vec3<u32>, groups: vec3<u32>) {
  let counter = counter_of(group, groups);
  if !is_last_workgroup(counter, groups.x, index) {
    return;
  }

  let length = part_length();
  let vec4s = vec4s_of_part();
  let step = part_rows() * length;
  let last = groups.x - 1u;
  let first = COUNTERS + counter * groups.x * step;
  // An invocation has four elements of a row, and another four after them if there are more than invocations. One text serves
  // all iterations of these loops, as instructions that an iteration doesn't run have to be fetched or jumped over.
  let items = min(ROWS, rows() - tile.row) * vec4s;
  for (var item = index; item < items; item += THREADS) {
    let row = item / vec4s;
    let four = item % vec4s;
    var all = Gathered(LOWEST, 0.0, vec4<f32>());
    for (var piece = 0u; piece < groups.x; piece += 8u) {
      all = gathered(all, load_eight(first + row * length, four, step, piece, last), piece, last);
    }
    write_fixed_up(tile, tile.row + row, 4u * four, all);
  }
}

// Writes four elements of a row's output, or as many as there are from `d` on.
fn write_fixed_up(tile: Tile, row: u32, d: u32, all: Gathered) {
  let place = place_of(tile, row);
  let sink = sink_of(place.x);
  let below = denominator(all.reference, all.total, sink);
  var result = all.sum * below.factor;
  if !is_finite(result) && is_defined(below.total) {
    result = mean_of_seen(tile.batch, tile.real, place.x, place.y, d, sink, result);
  }
  let at = params.o.x + tile.batch * params.o.y + place.x * params.o.z + place.y * params.o.w + d;
  write_output(at, v_head_dim() - d, result);
}
