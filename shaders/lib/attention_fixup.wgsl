// The outputs of rows whose keys are in pieces, put together by the workgroup that is the last of its tile: each workgroup
// writes its part to memory and adds 1 to the tile's counter, and the one that finds all others counted does what
// attention/combine does, in the order of the pieces (the fix-up of split-K products; CUDA's threadFenceReduction).
//
// The order of memory between workgroups comes from `storageBarrier`, whose scope in SPIR-V is the device; WGSL promises
// that of the workgroup alone, so this is for devices with such barriers. Parts are atomic, too: other accesses may stay
// in a compute unit's cache. A counter is 0 between launches, as each workgroup of a grid counts once and the last one
// takes the counter back.
//
// A part is a reference, a sum of weights, and a vector, of which every fourth elements are neighbours: invocations that
// have four elements each access it side by side.
//
// needs: T, THREADS, ROWS, lib/attention, lib/attention_pieces, lib/attention_seen, lib/attention_sinks

@group(0) @binding(6) var<storage, read_write> fixup: array<atomic<u32>>;
@group(0) @binding(7) var<storage, read_write> o: array<T>;

// Counters, which come before the parts; a tile has one.
const COUNTERS: u32 = 1024u;
// Rows of all pieces of a tile, at most.
const STATES: u32 = 256u;

var<workgroup> sh_is_last: u32;
// References and sums of weights, row by row of each piece.
var<workgroup> sh_parts: array<vec2<f32>, STATES>;

// Vectors of four in an output.
fn fours_of_part() -> u32 {
  return (v_head_dim() + 3u) / 4u;
}

// Words of a row's part.
fn part_length() -> u32 {
  return 4u * fours_of_part() + 2u;
}

// Rows that have room in a part of the tile.
fn part_rows() -> u32 {
  return min(ROWS, rows());
}

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
  let at = own_part(group, groups, row) + 2u + number % 4u * fours_of_part() + number / 4u;
  atomicStore(&fixup[at], bitcast<u32>(sum));
}

// Writes four neighbouring elements of a row of the tile.
fn put_four(tile: Tile, group: vec3<u32>, groups: vec3<u32>, row: u32, four: u32, sum: vec4<f32>) {
  let at = own_part(group, groups, row) + 2u + four;
  let step = fours_of_part();
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

// Four elements of a row's part in eight pieces, which are on their way together; each has a name of its own, as drivers
// keep arrays elsewhere.
struct EightFours {
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

fn load_four(at: u32) -> vec4<f32> {
  let step = fours_of_part();
  return vec4<f32>(
    load_number(at),
    load_number(at + step),
    load_number(at + 2u * step),
    load_number(at + 3u * step),
  );
}

// Of the pieces from `piece` on, each `step` words after the one before; of those beyond the last, the last.
fn load_eight(at: u32, step: u32, piece: u32, last: u32) -> EightFours {
  return EightFours(
    load_four(at + min(piece, last) * step),
    load_four(at + min(piece + 1u, last) * step),
    load_four(at + min(piece + 2u, last) * step),
    load_four(at + min(piece + 3u, last) * step),
    load_four(at + min(piece + 4u, last) * step),
    load_four(at + min(piece + 5u, last) * step),
    load_four(at + min(piece + 6u, last) * step),
    load_four(at + min(piece + 7u, last) * step),
  );
}

// A row's sum of weights and its sums of four weighted values.
struct Gathered {
  total: f32,
  sum: vec4<f32>,
}

// With what a piece has of the row, unless it is beyond the last.
fn gathered(before: Gathered, row: u32, piece: u32, last: u32, four: vec4<f32>, peak: f32) -> Gathered {
  if piece > last {
    return before;
  }
  let state = sh_parts[piece * part_rows() + row];
  let rescale = weight((state.x - peak) * score_unit());
  return Gathered(before.total + state.y * rescale, before.sum + four * rescale);
}

// Comes after the workgroup's own parts. The whole workgroup has to come here.
fn finish(tile: Tile, index: u32, group: vec3<u32>, groups: vec3<u32>) {
  // What the workgroup's invocations have written comes before its count.
  storageBarrier();
  let counter = counter_of(group, groups);
  if index == 0u {
    let is_last = atomicAdd(&fixup[counter], 1u) + 1u == groups.x;
    if is_last {
      atomicStore(&fixup[counter], 0u);
    }
    sh_is_last = u32(is_last);
  }
  if workgroupUniformLoad(&sh_is_last) == 0u {
    return;
  }
  // What other workgroups have written before they counted is read after this.
  storageBarrier();

  let height = part_rows();
  let length = part_length();
  let fours = fours_of_part();
  let last = groups.x - 1u;
  let first = COUNTERS + counter * groups.x * height * length;
  // An invocation has four elements of a row, and another four after them if there are more than invocations.
  let items = min(ROWS, rows() - tile.row) * fours;
  let start = min(index, items - 1u);
  var eight = load_eight(first + start / fours * length + 2u + start % fours, height * length, 0u, last);
  for (var i = index; i < groups.x * height; i += THREADS) {
    let at = first + i * length;
    sh_parts[i] = vec2<f32>(load_number(at), load_number(at + 1u));
  }
  workgroupBarrier();
  for (var item = index; item < items; item += THREADS) {
    let row = item / fours;
    let at = first + row * length + 2u + item % fours;
    if item != index {
      eight = load_eight(at, height * length, 0u, last);
    }
    var peak = LOWEST;
    for (var piece = 0u; piece < groups.x; piece++) {
      peak = max(peak, sh_parts[piece * height + row].x);
    }
    var all: Gathered;
    for (var piece = 0u; piece < groups.x; piece += 8u) {
      all = gathered(all, row, piece, last, eight.a, peak);
      all = gathered(all, row, piece + 1u, last, eight.b, peak);
      all = gathered(all, row, piece + 2u, last, eight.c, peak);
      all = gathered(all, row, piece + 3u, last, eight.d, peak);
      all = gathered(all, row, piece + 4u, last, eight.e, peak);
      all = gathered(all, row, piece + 5u, last, eight.f, peak);
      all = gathered(all, row, piece + 6u, last, eight.g, peak);
      all = gathered(all, row, piece + 7u, last, eight.h, peak);
      if piece + 8u < groups.x {
        eight = load_eight(at, height * length, piece + 8u, last);
      }
    }
    write_fixed_up(tile, tile.row + row, 4u * (item % fours), peak, all);
  }
}

// Writes four elements of a row's output, or as many as there are from `d` on.
fn write_fixed_up(tile: Tile, row: u32, d: u32, peak: f32, all: Gathered) {
  let place = place_of(tile, row);
  let sink = sink_of(place.x);
  let below = denominator(peak, all.total, sink);
  var result = all.sum * below.factor;
  if !is_finite(result) && is_defined(below.total) {
    result = mean_of_seen(tile.batch, place.x, place.y, d, sink, result);
  }
  let at = params.o.x + tile.batch * params.o.y + place.x * params.o.z + place.y * params.o.w + d;
  for (var i = 0u; i < min(4u, v_head_dim() - d); i++) {
    o[at + i] = T(result[i]);
  }
}
