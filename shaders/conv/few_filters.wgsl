// Convolution (lib/conv) with few filters in a group, whose taps lie at whole positions: each invocation makes
// the results of FILTERS filters at PIXELS pixels, so that the source is read once for all of them. Neighbours
// have neighbouring pixels.
//
// What is summed over are units: a tap of the filter and four channels. The weights of many units are staged
// at a time. A sum may be shared among PARTS invocations of a workgroup, which alternate with units, and be
// made in slices of the channels, each of which has tiles and results of its own.
//
// The loop over units, `multiply`, is written by src/ops/conv/few_filters.rs, and calls the functions of this
// file: sums have to be in registers.
//
// needs: T, TC (of the results), FILTERS, PIXELS, PARTS, VECTORS (four channels are read as a vector), ACTIVATION,
// lib/conv, lib/quotient, lib/input_origin, lib/workgroup_tiles

const THREADS: u32 = 128u;
const LANES: u32 = THREADS / PARTS;
const VEC4S: u32 = FILTERS / 4u;
const_assert VEC4S == 1u || VEC4S == 2u;
const ROOM: u32 = 1024u;
const_assert PIXELS * VEC4S * THREADS <= ROOM;

// The weights of units, of each channel those of four filters; then sums of four filters.
var<workgroup> sh: array<vec4<f32>, ROOM>;

struct Tile {
  // The first result pixel of all images, and the first filter of a group.
  row: u32,
  filter_index: u32,
  group: u32,
  // Channels of the group from the first to the one after the last.
  first_channel: u32,
  end_channel: u32,
  // Where the group's source, and the results of the tile's slice begin.
  source: u32,
  slice_offset: u32,
}

// A tap of the filter by its row and column, and four channels.
struct Unit {
  r: u32,
  s: u32,
  four: u32,
}

// Tiles of the same pixels follow each other, so that what they share is still in the cache.
fn tile_of(flat: u32) -> Tile {
  let across = flat / params.tiles_n;
  let group_slice = across / params.tiles_m;
  let group = group_slice % params.groups;
  let slice = group_slice / params.groups;
  let depth = params.slice / places();
  let first_channel = slice * depth;
  return Tile(
    across % params.tiles_m * (LANES * PIXELS),
    flat % params.tiles_n * FILTERS,
    group,
    first_channel,
    min(first_channel + depth, params.channels),
    params.input_offset + group * params.channels * channel_step(),
    slice * params.rows * params.groups * params.filters,
  );
}

fn places() -> u32 {
  return params.filter_height * params.filter_width;
}

fn unit_at(number: u32) -> Unit {
  let outer = small_quotient_rest(number, places(), params.per_outer);
  let inner = small_quotient_rest(outer.y, params.filter_width, params.per_filter_row);
  return Unit(inner.x, inner.y, outer.x);
}

fn unit_after(unit: Unit, step: Unit) -> Unit {
  let s = unit.s + step.s;
  let wraps = s >= params.filter_width;
  let r = unit.r + step.r + select(0u, 1u, wraps);
  let ends = r >= params.filter_height;
  return Unit(
    r - select(0u, params.filter_height, ends),
    s - select(0u, params.filter_width, wraps),
    unit.four + step.four + select(0u, 1u, ends),
  );
}

// Weights of a channel and a tap for all filters, and where they are staged.
struct Weights {
  to: u32,
  low: vec4<f32>,
  high: vec4<f32>,
}

// Stages the weights of `count` channels from `first` on. Four are read before the first is staged: between the
// two, it would be waited for.
fn stage(tile: Tile, index: u32, first: u32, count: u32) {
  let total = (count + 3u) / 4u * 4u * places();
  for (var i = index; i < total; i += 4u * THREADS) {
    let a = fetch_weights(tile, i, first, count);
    let b = fetch_weights(tile, i + THREADS, first, count);
    let c = fetch_weights(tile, i + 2u * THREADS, first, count);
    let d = fetch_weights(tile, i + 3u * THREADS, first, count);
    stage_weights(a);
    if i + THREADS < total { stage_weights(b); }
    if i + 2u * THREADS < total { stage_weights(c); }
    if i + 3u * THREADS < total { stage_weights(d); }
  }
}

// The weights number `i` in the order of memory, 0 for channels that fill up the last four. Beyond the last filter
// and the last weight, they are others, which reach no result.
fn fetch_weights(tile: Tile, i: u32, first: u32, count: u32) -> Weights {
  let interleaved = params.interleaved == 1u;
  let padded = (count + 3u) / 4u * 4u;
  let channel = select(i / places(), i % padded, interleaved);
  let place = select(i % places(), i / padded, interleaved);
  let to = ((channel / 4u * places() + place) * 4u + channel % 4u) * VEC4S;
  let existing = vec2<u32>(first + min(channel, count - 1u), min(place, places() - 1u));
  let inner = select(existing.x * places() + existing.y, existing.y * params.channels + existing.x, interleaved);
  let at = params.filter_offset + tile.group * params.filters * taps() + inner;
  let inside = channel < count;
  let low = select(vec4<f32>(), four_weights(at, tile.filter_index), inside);
  if VEC4S == 1u {
    return Weights(to, low, low);
  }
  return Weights(to, low, select(vec4<f32>(), four_weights(at, tile.filter_index + 4u), inside));
}

fn stage_weights(weights: Weights) {
  sh[weights.to] = weights.low;
  if VEC4S == 2u {
    sh[weights.to + 1u] = weights.high;
  }
}

// Of four filters from `f` on, the weight at `at` of the group's first.
fn four_weights(at: u32, f: u32) -> vec4<f32> {
  let rows = min(vec4<u32>(f, f + 1u, f + 2u, f + 3u), vec4<u32>(params.filters - 1u)) * taps();
  return vec4<f32>(
    f32(filter_values[at + rows.x]),
    f32(filter_values[at + rows.y]),
    f32(filter_values[at + rows.z]),
    f32(filter_values[at + rows.w]),
  );
}

fn origin_of(tile: Tile, lane: u32, pixel: u32) -> InputOrigin {
  let origin = input_origin_of(tile.row + pixel * LANES + lane);
  return InputOrigin(tile.source + origin.at, origin.rows, origin.columns);
}

// From a result's origin to a unit's tap, without the channel.
fn tap_offset(unit: Unit) -> u32 {
  return u32(i32(unit.r) * params.tap_y * i32(params.width) + i32(unit.s) * params.tap_x) * column_step();
}

// What a result has under a unit's tap: `count` channels from `channel` on, and 0 for others. Everything is read,
// whether it exists or not, because branches would be waited for: instead of it, the first pixel.
fn under(tile: Tile, origin: InputOrigin, unit: Unit, tap: u32, channel: u32, count: u32) -> vec4<f32> {
  let inside = ((origin.rows >> unit.r) & (origin.columns >> unit.s) & 1u) == 1u;
  let at = select(tile.source, origin.at + tap, inside) + channel * channel_step();
  var v: vec4<f32>;
  if VECTORS == 1u {
    v = vec4<f32>(input4[at / 4u]);
  } else {
    let next = min(vec3<u32>(1u, 2u, 3u), vec3<u32>(count - 1u)) * channel_step();
    v = vec4<f32>(f32(input[at]), f32(input[at + next.x]), f32(input[at + next.y]), f32(input[at + next.z]));
    v = select(vec4<f32>(), v, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(count));
  }
  return select(vec4<f32>(), v, inside);
}

// Adds the parts of the sums, and writes the results.
fn write_out(tile: Tile, index: u32) {
  for (var i = index; i < LANES * PIXELS * VEC4S; i += THREADS) {
    var sums = vec4<f32>();
    for (var part = 0u; part < PARTS; part++) {
      sums += sh[part * (LANES * PIXELS * VEC4S) + i];
    }
    let four = i / LANES;
    let row = tile.row + four / VEC4S * LANES + i % LANES;
    let column = tile.filter_index + four % VEC4S * 4u;
    if row < params.rows && column < params.filters {
      let f = tile.group * params.filters + column;
      let place = quotient_rest(row, params.pixels, params.per_image);
      let at = tile.slice_offset + result_at(place.x, place.y, f);
      let step = select(params.pixels, 1u, params.interleaved == 1u);
      let count = params.filters - column;
      output[at] = TC(finish(sums.x, f));
      if count > 1u { output[at + step] = TC(finish(sums.y, f + 1u)); }
      if count > 2u { output[at + 2u * step] = TC(finish(sums.z, f + 2u)); }
      if count > 3u { output[at + 3u * step] = TC(finish(sums.w, f + 3u)); }
    }
  }
}

fn make_tile(flat: u32, index: u32) {
  let tile = tile_of(flat);
  multiply(tile, index);
  write_out(tile, index);
}
