// The gradient of a convolution's filters as a matrix product that is never written out: its rows are the filters of a
// group, its columns their taps, and what is summed over are the output's pixels of the whole batch: the output's gradient
// times what the input has under the tap. A batch of products is made: of each group, or where sums are long, of pieces
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

@group(0) @binding(0) var<storage, read> gradient: array<T>;
@group(0) @binding(1) var<storage, read> input: array<T>;
@group(0) @binding(2) var<storage, read_write> output: array<TR>;

fn group_of(tile: Tile) -> u32 {
  return tile.batch % params.groups;
}

// The first pixel beyond the tile's piece.
fn piece_end(tile: Tile) -> u32 {
  return min((tile.batch / params.groups + 1u) * params.length, params.rows);
}

// Four pixels from `row` on: the image of each, and where it is in the image.
struct Pixels {
  image: vec4<u32>,
  pixel: vec4<u32>,
}

fn pixels_from(row: u32) -> Pixels {
  var place = quotient_rest(row, params.pixels, params.per_image);
  var all: Pixels;
  for (var i = 0u; i < 4u; i++) {
    all.image[i] = place.x;
    all.pixel[i] = place.y;
    place.y += 1u;
    if place.y == params.pixels {
      place = vec2<u32>(place.x + 1u, 0u);
    }
  }
  return all;
}

// Four filters by four pixels.
fn block_a(tile: Tile, place: vec2<u32>) -> mat4x4<f32> {
  let end = piece_end(tile);
  let all = pixels_from(place.y);
  let channels = params.groups * params.filters;
  let first = group_of(tile) * params.filters + place.x;
  var block = mat4x4<f32>();
  for (var i = 0u; i < 4u; i++) {
    if place.y + i < end {
      let image = all.image[i] * channels * params.pixels;
      for (var j = 0u; j < 4u; j++) {
        if place.x + j < params.filters {
          let at = select(
            (first + j) * params.pixels + all.pixel[i],
            all.pixel[i] * channels + first + j,
            INTERLEAVED == 1u,
          );
          block[i][j] = f32(gradient[params.gradient_offset + image + at]);
        }
      }
    }
  }
  return block;
}

// Four taps by four pixels.
fn block_b(tile: Tile, place: vec2<u32>) -> mat4x4<f32> {
  let end = piece_end(tile);
  let all = pixels_from(place.y);
  let window = params.filter_height * params.filter_width;
  let channels = params.groups * params.channels;
  let column_step = select(1u, channels, INTERLEAVED == 1u);
  let channel_step = select(params.height * params.width, 1u, INTERLEAVED == 1u);
  var block = mat4x4<f32>();
  for (var i = 0u; i < 4u; i++) {
    let pixel = quotient_rest(all.pixel[i], params.out_width, params.per_row);
    let image = params.input_offset + all.image[i] * channels * params.height * params.width;
    for (var j = 0u; j < 4u; j++) {
      let tap = place.x + j;
      if place.y + i < end && tap < params.taps {
        var outer = quotient_rest(tap, select(window, params.channels, INTERLEAVED == 1u), params.per_outer);
        if INTERLEAVED == 1u {
          outer = outer.yx;
        }
        let inner = quotient_rest(outer.y, params.filter_width, params.per_filter_row);
        let y = i32(pixel.x * params.step_y) + i32(inner.x) * params.tap_y + params.offset_y;
        let x = i32(pixel.y * params.step_x) + i32(inner.y) * params.tap_x + params.offset_x;
        if u32(y) < params.height && u32(x) < params.width {
          let channel = group_of(tile) * params.channels + outer.x;
          let at = channel * channel_step + (u32(y) * params.width + u32(x)) * column_step;
          block[i][j] = f32(input[image + at]);
        }
      }
    }
  }
  return block;
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
  let lane = lane_of(index);
  let first = tile.batch / params.groups * params.length;
  var sums = tile_product(tile, lane, index, first, piece_end(tile) - first);
  let base = params.output_offset + tile.batch * params.filters * params.taps;
  for (var i = 0u; i < THREAD_M; i++) {
    let row = tile.row + result_row(lane, i);
    for (var j = 0u; j < THREAD_N; j++) {
      let column = tile.column + result_column(lane, j / 4u) + j % 4u;
      if row < params.filters && column < params.taps {
        output[base + row * params.taps + column] = TR(sums[i * THREAD_N4 + j / 4u][j % 4u]);
      }
    }
  }
}
