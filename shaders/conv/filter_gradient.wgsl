// The gradient of a convolution's filters as a matrix product that is never written out: its rows are the
// taps of a group's filters, its columns the filters, and what is summed over are the output's pixels of the
// whole batch: what the input has under a tap times the output's gradient. A batch of products is made: of
// each group, or where sums are long, of pieces of them, which lie one after another.
//
// needs: T, TR (of the result), INTERLEAVED (the channels of a pixel are adjacent), lib/quotient, lib/source_vec4s
// and what lib/tile_product needs

const A_ALONG_K: u32 = 1u - INTERLEAVED;
const B_ALONG_K: u32 = 1u - INTERLEAVED;
const COLUMN_STEP: u32 = 1u;

fn group_of(tile: Tile) -> u32 {
  return tile.batch % params.groups;
}

// The first pixel beyond the tile's piece.
fn piece_end(tile: Tile) -> u32 {
  return min((tile.batch / params.groups + 1u) * params.length, params.rows);
}

// Where the rows of blocks are: for each of four taps its channel's and its own distance in the source, and how far it
// is down and to the right.
var<private> held_at: vec4<u32>;
var<private> held_y: vec4<i32>;
var<private> held_x: vec4<i32>;

fn channel_step() -> u32 {
  return select(params.height * params.width, 1u, INTERLEAVED == 1u);
}

fn column_step() -> u32 {
  return select(1u, params.groups * params.channels, INTERLEAVED == 1u);
}

struct Tap {
  at: u32,
  y: i32,
  x: i32,
}

fn tap_of(tile: Tile, row: u32) -> Tap {
  let window = params.filter_height * params.filter_width;
  var outer = quotient_rest(row, select(window, params.channels, INTERLEAVED == 1u), params.per_outer);
  if INTERLEAVED == 1u {
    outer = outer.yx;
  }
  let inner = quotient_rest(outer.y, params.filter_width, params.per_filter_row);
  let y = i32(inner.x) * params.tap_y;
  let x = i32(inner.y) * params.tap_x;
  let channel = group_of(tile) * params.channels + outer.x;
  let at = channel * channel_step() + u32(y * i32(params.width) + x) * column_step();
  // A tap that isn't there lies in no image.
  return Tap(at, select(y, -0x40000000, row >= params.taps), x);
}

fn hold(tile: Tile, row: u32) {
  let a = tap_of(tile, row);
  let b = tap_of(tile, row + 1u);
  let c = tap_of(tile, row + 2u);
  let d = tap_of(tile, row + 3u);
  held = row;
  held_at = vec4<u32>(a.at, b.at, c.at, d.at);
  held_y = vec4<i32>(a.y, b.y, c.y, d.y);
  held_x = vec4<i32>(a.x, b.x, c.x, d.x);
}

// A pixel of the output: its image, row and column.
struct Pixel {
  image: u32,
  y: u32,
  x: u32,
}

alias Summand = Pixel;

fn summand_of(k: u32) -> Pixel {
  let place = quotient_rest(k, params.pixels, params.per_image);
  let pixel = quotient_rest(place.y, params.out_width, params.per_row);
  return Pixel(place.x, pixel.x, pixel.y);
}

// The next one in memory.
fn after(pixel: Pixel) -> Pixel {
  var next = Pixel(pixel.image, pixel.y, pixel.x + 1u);
  if next.x == params.out_width {
    next = Pixel(pixel.image, pixel.y + 1u, 0u);
    if next.y * params.out_width == params.pixels {
      next = Pixel(pixel.image + 1u, 0u, 0u);
    }
  }
  return next;
}

// What four taps have of the input for a pixel, or 0.
fn under(pixel: Pixel, wanted: bool) -> vec4<f32> {
  let y = i32(pixel.y * params.step_y) + params.offset_y;
  let x = i32(pixel.x * params.step_x) + params.offset_x;
  let image = pixel.image * params.groups * params.channels * params.height * params.width;
  let at = params.input_offset + image + u32(y * i32(params.width) + x) * column_step() + held_at;
  let rows = bitcast<vec4<u32>>(held_y + y) < vec4<u32>(params.height);
  let inside = rows & (bitcast<vec4<u32>>(held_x + x) < vec4<u32>(params.width));
  if wanted && pixel.image * params.pixels < params.rows {
    return input_four(at, inside);
  }
  return vec4<f32>();
}

// The gradients of four filters at a pixel, or 0.
fn given(tile: Tile, filter_index: u32, pixel: Pixel, wanted: bool) -> vec4<f32> {
  let channels = params.groups * params.filters;
  let first = group_of(tile) * params.filters + filter_index;
  let place = pixel.y * params.out_width + pixel.x;
  let image = params.gradient_offset + pixel.image * channels * params.pixels;
  let step = select(params.pixels, 1u, INTERLEAVED == 1u);
  let at = image + select(first * params.pixels + place, place * channels + first, INTERLEAVED == 1u);
  var v = vec4<f32>();
  if wanted && pixel.image * params.pixels < params.rows {
    if filter_index < params.filters { v.x = f32(gradient[at]); }
    if filter_index + 1u < params.filters { v.y = f32(gradient[at + step]); }
    if filter_index + 2u < params.filters { v.z = f32(gradient[at + 2u * step]); }
    if filter_index + 3u < params.filters { v.w = f32(gradient[at + 3u * step]); }
  }
  return v;
}

// Four filters by four pixels, of which `count` are to be had.
fn block_b(tile: Tile, origin: vec2<u32>, lane: vec2<u32>, count: u32) -> mat4x4<f32> {
  let place = origin + lane;
  let a = summand_of(place.y);
  let b = after(a);
  let c = after(b);
  let d = after(c);
  return mat4x4<f32>(
    given(tile, place.x, a, count > 0u),
    given(tile, place.x, b, count > 1u),
    given(tile, place.x, c, count > 2u),
    given(tile, place.x, d, count > 3u),
  );
}

fn write_out(tile: Tile, row: u32, column: u32, sums: vec4<f32>) {
  let first = params.output_offset + tile.batch * params.filters * params.taps;
  for (var j = 0u; j < 4u; j++) {
    if row < params.taps && column + j < params.filters {
      output[first + (column + j) * params.taps + row] = TR(sums[j]);
    }
  }
}

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) index: u32) {
  let flat = params.first_tile + flat_group(workgroup.id, workgroup.count);
  if flat >= params.tiles {
    return;
  }
  let across = flat / params.tiles_n;
  let tile = Tile((across % params.tiles_m) * TILE_M, (flat % params.tiles_n) * TILE_N, across / params.tiles_m);
  let first = tile.batch / params.groups * params.length;
  tile_product(tile, index, first, piece_end(tile) - first);
}
