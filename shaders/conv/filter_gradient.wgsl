// The gradient of a convolution's filters as a matrix product that is never written out: its rows are the taps of a
// group's filters, its columns the filters, and what is summed over are the output's pixels of the whole batch: what the
// input has under a tap times the output's gradient. A batch of products is made: of each group, or where sums are long, of pieces
// of them, which lie one after another.
//
// needs: T, TR (of the result), INTERLEAVED (the channels of a pixel are adjacent), lib/quotient and what
// lib/tile_product needs

const A_ALONG_K: u32 = 1u - INTERLEAVED;
const B_ALONG_K: u32 = 1u - INTERLEAVED;

struct Params {
  // Output pixels of all images, of one, and in a row.
  rows: u32,
  pixels: u32,
  out_width: u32,
  groups: u32,
  filters: u32,
  channels: u32,
  taps: u32,
  filter_height: u32,
  filter_width: u32,
  height: u32,
  width: u32,
  step_y: u32,
  step_x: u32,
  tap_y: i32,
  tap_x: i32,
  offset_y: i32,
  offset_x: i32,
  // Pixels in a piece.
  length: u32,
  input_offset: u32,
  gradient_offset: u32,
  output_offset: u32,
  tiles_m: u32,
  tiles_n: u32,
  tiles: u32,
  per_image: f32,
  per_row: f32,
  per_filter_row: f32,
  per_outer: f32,
}

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read> gradient: array<T>;
@group(0) @binding(2) var<storage, read_write> output: array<TR>;

fn group_of(tile: Tile) -> u32 {
  return tile.batch % params.groups;
}

// The first pixel beyond the tile's piece.
fn piece_end(tile: Tile) -> u32 {
  return min((tile.batch / params.groups + 1u) * params.length, params.rows);
}

// Where the rows of blocks are, which an invocation asks for again and again: for each of four taps its channel's and its
// own distance in the source, and how far it is down and to the right.
var<private> held: u32 = 0xffffffffu;
var<private> held_at: vec4<u32>;
var<private> held_y: vec4<i32>;
var<private> held_x: vec4<i32>;

fn channel_step() -> u32 {
  return select(params.height * params.width, 1u, INTERLEAVED == 1u);
}

fn column_step() -> u32 {
  return select(1u, params.groups * params.channels, INTERLEAVED == 1u);
}

fn hold(tile: Tile, row: u32) {
  held = row;
  let window = params.filter_height * params.filter_width;
  for (var i = 0u; i < 4u; i++) {
    var outer = quotient_rest(row + i, select(window, params.channels, INTERLEAVED == 1u), params.per_outer);
    if INTERLEAVED == 1u {
      outer = outer.yx;
    }
    let inner = quotient_rest(outer.y, params.filter_width, params.per_filter_row);
    let y = i32(inner.x) * params.tap_y;
    let x = i32(inner.y) * params.tap_x;
    let channel = group_of(tile) * params.channels + outer.x;
    held_at[i] = channel * channel_step() + u32(y * i32(params.width) + x) * column_step();
    // A tap that isn't there lies in no image.
    held_y[i] = select(y, -0x40000000, row + i >= params.taps);
    held_x[i] = x;
  }
}

// A pixel of the output: its image, row and column.
struct Pixel {
  image: u32,
  y: u32,
  x: u32,
}

fn pixel_of(k: u32) -> Pixel {
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

// Four taps by four pixels, of which `count` are to be had.
fn block_a(tile: Tile, corner: vec2<u32>, lane: vec2<u32>, count: u32) -> mat4x4<f32> {
  let place = corner + lane;
  if held != place.x {
    hold(tile, place.x);
  }
  let image_step = params.groups * params.channels * params.height * params.width;
  var pixel = pixel_of(place.y);
  var block = mat4x4<f32>();
  for (var i = 0u; i < 4u; i++) {
    if i < count && place.y + i < params.rows {
      let y = i32(pixel.y * params.step_y) + params.offset_y;
      let x = i32(pixel.x * params.step_x) + params.offset_x;
      let first = params.input_offset + pixel.image * image_step + u32(y * i32(params.width) + x) * column_step();
      let rows = bitcast<vec4<u32>>(held_y + y) < vec4<u32>(params.height);
      let inside = rows & (bitcast<vec4<u32>>(held_x + x) < vec4<u32>(params.width));
      if inside.x { block[i].x = f32(input[first + held_at.x]); }
      if inside.y { block[i].y = f32(input[first + held_at.y]); }
      if inside.z { block[i].z = f32(input[first + held_at.z]); }
      if inside.w { block[i].w = f32(input[first + held_at.w]); }
    }
    pixel = after(pixel);
  }
  return block;
}

// Four filters by four pixels, of which `count` are to be had.
fn block_b(tile: Tile, corner: vec2<u32>, lane: vec2<u32>, count: u32) -> mat4x4<f32> {
  let place = corner + lane;
  let channels = params.groups * params.filters;
  let first = group_of(tile) * params.filters + place.x;
  var split = quotient_rest(place.y, params.pixels, params.per_image);
  var block = mat4x4<f32>();
  for (var i = 0u; i < 4u; i++) {
    if i < count && place.y + i < params.rows {
      let image = params.gradient_offset + split.x * channels * params.pixels;
      var at = image + split.y * channels + first;
      var step = 1u;
      if INTERLEAVED == 0u {
        at = image + first * params.pixels + split.y;
        step = params.pixels;
      }
      for (var j = 0u; j < 4u; j++) {
        if place.x + j < params.filters {
          block[i][j] = f32(gradient[at + j * step]);
        }
      }
    }
    split.y += 1u;
    if split.y == params.pixels {
      split = vec2<u32>(split.x + 1u, 0u);
    }
  }
  return block;
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
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let flat = flat_group(group, groups);
  if flat >= params.tiles {
    return;
  }
  let across = flat / params.tiles_n;
  let tile = Tile((across % params.tiles_m) * TILE_M, (flat % params.tiles_n) * TILE_N, across / params.tiles_m);
  let first = tile.batch / params.groups * params.length;
  tile_product(tile, index, first, piece_end(tile) - first);
}
