// Convolution and its transposition (lib/conv) as a matrix product that is never written out, of f16,
// multiplied by the device's tensor cores, which add in f32: its rows are the filters of a group, its columns
// the result's pixels of the whole batch, and what is summed over are the filter's taps.
//
// It is gemm/cooperative with another right operand. If channels are adjacent, a multiple of eight in a
// group, eight of them are read from where a tap of the filter lies over the source. If they are planes
// (TRANS_B = 0), the filter is one pixel that moves by one, and eight pixels are read, which is why an image
// has a multiple of eight; tiles go on from one image to the next. The step itself, `multiply`, is written by
// src/ops/matmul/fragments.rs and calls the functions of this file and of lib/fragments.
//
// The sums may be made in slices, each of which has tiles and results of its own.
//
// needs: T, TC (of the result), ACTIVATION, PLANES (of the result), lib/conv, lib/quotient, lib/input_origin,
// lib/workgroup_tiles, and what lib/fragments needs

// Groups of eight are addressed as a whole.
const UNIT: u32 = 8u;

struct Tile {
  row: u32,
  column: u32,
  first_filter: u32,
  // The first tap, and the first result of its slice.
  first_tap: u32,
  output: u32,
  a: Operand,
  b: Operand,
  // How much of the taps the first step takes, and how many steps there are.
  head: u32,
  steps: u32,
}

// Columns, or channels that are planes, of which an invocation fetches groups.
const FETCHES_B: u32 = ROWS_B / ITERATION_ROWS_B;
const_assert TRANS_B == 0u || FETCHES_B <= 6u;

// For each of an invocation's columns: where its first tap would be in the source, in groups of eight, and
// which rows and columns of the filter lie in the image.
var<private> held: array<InputOrigin, FETCHES_B>;

// Planes: from where a column of pixels of one image would be to where it is.
var<private> held_plane: u32;

// A place in the filter and a group of eight channels; or a distance from one to another, for which divisions
// would take longer than what is multiplied meanwhile.
struct Tap {
  row: u32,
  column: u32,
  eight: u32,
}

// The tap that is fetched next, and how far it goes on: the first step may be shorter than the others.
var<private> held_tap: Tap;
var<private> held_step: Tap;
var<private> held_whole_step: Tap;

// Tiles of the same pixels follow each other, so that what they share is still in the cache.
fn tile_of(flat: u32) -> Tile {
  let across = flat / params.tiles_m;
  let row = flat % params.tiles_m * TILE_M;
  let column = across % params.tiles_n * TILE_N;
  let group_slice = across / params.tiles_n;
  let first_filter = group_slice % params.groups * params.filters;
  let slice = group_slice / params.groups;
  let first_tap = slice * params.slice;
  let depth = min(taps() - first_tap, params.slice);
  let steps = (depth + TILE_K - 1u) / TILE_K;
  let ld = taps() / 8u;
  let base = params.filter_offset / 8u + first_filter * ld;
  let operands = Operand(base + row * ld + first_tap / 8u, base + params.filters * ld - 1u, ld);
  // Where a column begins is held.
  let last = (params.input_offset + params.rows * params.groups * params.channels) / 8u - 1u;
  let source = Operand(first_tap * (params.pixels / 8u), last, params.pixels / 8u);
  let output = params.output_offset + slice * params.rows * params.groups * params.filters;
  return Tile(row, column, first_filter, first_tap, output, operands, source, depth - (steps - 1u) * TILE_K, steps);
}

// Groups of eight from one pixel of the source to the next.
fn pixel_vec8s() -> u32 {
  return params.groups * params.channels / 8u;
}

fn hold(tile: Tile, index: u32) {
  let group = tile.first_filter / params.filters;
  let place = lane_place(index, VEC8S_B);
  if TRANS_B == 0u {
    let at = small_quotient_rest(tile.column + place.y * 8u, params.pixels, params.per_image);
    let channel = (at.x * params.groups + group) * params.channels;
    held_plane = params.input_offset / 8u + channel * tile.b.ld + at.y / 8u - place.y;
    return;
  }
  // Written out, because a compiler that doesn't unroll a loop over them would put them into memory.
  let base = params.input_offset + group * params.channels;
  let column = tile.column + place.x;
  held[0] = vec8s_origin(base, column);
  if FETCHES_B > 1u { held[1u % FETCHES_B] = vec8s_origin(base, column + ITERATION_ROWS_B); }
  if FETCHES_B > 2u { held[2u % FETCHES_B] = vec8s_origin(base, column + 2u * ITERATION_ROWS_B); }
  if FETCHES_B > 3u { held[3u % FETCHES_B] = vec8s_origin(base, column + 3u * ITERATION_ROWS_B); }
  if FETCHES_B > 4u { held[4u % FETCHES_B] = vec8s_origin(base, column + 4u * ITERATION_ROWS_B); }
  if FETCHES_B > 5u { held[5u % FETCHES_B] = vec8s_origin(base, column + 5u * ITERATION_ROWS_B); }
  held_tap = tap_at(tile.first_tap / 8u + place.y);
  held_step = tap_at(tile.head / 8u);
  held_whole_step = tap_at(TILE_K / 8u);
}

fn vec8s_origin(base: u32, column: u32) -> InputOrigin {
  let origin = input_origin_of(column);
  // A tap may lie before the image, so that the sign counts.
  return InputOrigin(bitcast<u32>(bitcast<i32>(base + origin.at) >> 3u), origin.rows, origin.columns);
}

fn fetch_a(tile: Tile, at: u32, iteration: u32) -> vec4<u32> {
  return a[min(at + iteration * ITERATION_ROWS_A * tile.a.ld, tile.a.last)];
}

// Groups are fetched from the held tap on, which goes on to the next step's with the last of them.
fn fetch_b(tile: Tile, at: u32, iteration: u32) -> vec4<u32> {
  if TRANS_B == 0u {
    return b[min(held_plane + at + iteration * ITERATION_ROWS_B * tile.b.ld, tile.b.last)];
  }
  let tap = held_tap;
  let origin = held[iteration];
  let pixel = i32(tap.row) * params.tap_y * i32(params.width) + i32(tap.column) * params.tap_x;
  let bits = (origin.rows >> tap.row) & (origin.columns >> tap.column) & 1u;
  let inside = tap.row < params.filter_height && bits == 1u;
  let group = select(0u, origin.at + u32(pixel) * pixel_vec8s() + tap.eight, inside);
  if iteration == FETCHES_B - 1u {
    held_tap = tap_after(tap, held_step);
    held_step = held_whole_step;
  }
  return select(vec4<u32>(), b[group], inside);
}

// The tap that lies so many groups of eight channels after the first.
fn tap_at(vec8s: u32) -> Tap {
  let outer = small_quotient_rest(vec8s, params.channels / 8u, params.per_outer);
  let inner = small_quotient_rest(outer.x, params.filter_width, params.per_filter_row);
  return Tap(inner.x, inner.y, outer.y);
}

fn tap_after(tap: Tap, step: Tap) -> Tap {
  let all = params.channels / 8u;
  let eight = tap.eight + step.eight;
  let column = tap.column + step.column + select(0u, 1u, eight >= all);
  let row = tap.row + step.row + select(0u, 1u, column >= params.filter_width);
  return Tap(
    row,
    column - select(0u, params.filter_width, column >= params.filter_width),
    eight - select(0u, all, eight >= all),
  );
}

// A group of the first step, with 0 for what lies beyond it.
fn keep_a(tile: Tile, index: u32, iteration: u32, group: vec4<u32>) -> vec4<u32> {
  return select(vec4<u32>(), group, lane_place(index, VEC8S_A).y * 8u < tile.head);
}

fn keep_b(tile: Tile, index: u32, iteration: u32, group: vec4<u32>) -> vec4<u32> {
  let place = lane_place(index, VEC8S_B);
  let k = select(place.x + iteration * ITERATION_ROWS_B, place.y * 8u, TRANS_B == 1u);
  return select(vec4<u32>(), group, k < tile.head);
}

// Writes a fragment of each subgroup, which begins at `inner` of the subgroup's part, from workgroup memory
// to the output. Its rows are filters, its columns pixels. Everything is read before the first is written:
// between conditional writes, it would be waited for.
fn write_out(tile: Tile, index: u32, inner: vec2<u32>) {
  const HALF = FRAGMENT / 2u;
  let subgroup = index / SUBGROUP;
  let lane = index % SUBGROUP;
  let origin = vec2<u32>(tile.row, tile.column) + part_of(subgroup) + inner;
  let sums = start_c(subgroup);
  let adjacent = select(params.filters, params.pixels, PLANES == 1u);
  if (tile.output | adjacent) % 4u == 0u {
    let four = vec2<u32>(lane / (FRAGMENT / 4u), lane % (FRAGMENT / 4u) * 4u);
    let cell = select(four.yx, four, PLANES == 1u);
    let half = select(vec2<u32>(0u, HALF), vec2<u32>(HALF, 0u), PLANES == 1u);
    let place = origin + cell;
    let other = place + half;
    let at = place_in_output(tile, place) / 4u;
    let step = HALF * select(params.groups * params.filters, params.pixels, PLANES == 1u) / 4u;
    let from_sums = sums + cell.x * STRIDE_C + cell.y;
    let results = four_results(from_sums, tile.first_filter + place.x);
    let others = four_results(from_sums + half.x * STRIDE_C + half.y, tile.first_filter + other.x);
    if place.x < params.filters && place.y < params.rows { output4[at] = results; }
    if other.x < params.filters && other.y < params.rows { output4[at + step] = others; }
  } else {
    for (var i = lane; i < FRAGMENT * FRAGMENT; i += SUBGROUP) {
      let cell = vec2<u32>(i / FRAGMENT, i % FRAGMENT);
      let place = origin + cell;
      if place.x < params.filters && place.y < params.rows {
        let sum = sh_c[sums + cell.x * STRIDE_C + cell.y];
        output[place_in_output(tile, place)] = TC(finish(sum, tile.first_filter + place.x));
      }
    }
  }
}

// Of a filter and a pixel.
fn place_in_output(tile: Tile, place: vec2<u32>) -> u32 {
  let all = params.groups * params.filters;
  let f = tile.first_filter + place.x;
  if PLANES == 0u {
    return tile.output + place.y * all + f;
  }
  let pixel = small_quotient_rest(place.y, params.pixels, params.per_image);
  return tile.output + (pixel.x * all + f) * params.pixels + pixel.y;
}

// What becomes of four sums from `first` on: those of a filter at four pixels, or of four filters at a pixel.
fn four_results(first: u32, f: u32) -> vec4<TC> {
  const ALONG = select(STRIDE_C, 1u, PLANES == 1u);
  const NEXT = 1u - PLANES;
  var v = vec4<f32>(sh_c[first], sh_c[first + ALONG], sh_c[first + 2u * ALONG], sh_c[first + 3u * ALONG]);
  if params.biased == 1u {
    let i = params.bias_offset + min(f, params.groups * params.filters - 1u - 3u * NEXT);
    v += vec4<f32>(f32(bias[i]), f32(bias[i + NEXT]), f32(bias[i + 2u * NEXT]), f32(bias[i + 3u * NEXT]));
  }
  return vec4<TC>(
    TC(activate(ACTIVATION, v.x)),
    TC(activate(ACTIVATION, v.y)),
    TC(activate(ACTIVATION, v.z)),
    TC(activate(ACTIVATION, v.w)),
  );
}

fn make_tile(flat: u32, index: u32) {
  let tile = tile_of(flat);
  hold(tile, index);
  multiply(tile, index);
}
