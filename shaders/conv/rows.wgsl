// Convolution of f16, or its transposition, where channels are planes, by filters three taps wide that move by one pixel
// along a row: by the device's matrix units, which add in f32.
//
// Every row of the result is thought of as longer than it is, by at least as much as the filter reaches beyond the
// image. Then a tap meets the source at one and the same distance from every pixel, also from one row to the next: what
// it meets beyond the image is the unused end of a row, which is staged as 0. A workgroup makes TILE_M filters at TILE_N
// such pixels. In each step it stages 16 channels of what one row of the filter meets, a row of workgroup memory for each
// pixel, and all taps of the filter's row read their fragments from there, each beginning at another pixel. Fragments of
// the filters are read from where conv/factors has put them, each in one piece.
//
// The step itself, `multiply`, is written by src/ops/conv/row_step.rs: its loops over fragments have to be unrolled. It
// calls the functions of this file. The sums leave it through workgroup memory, because the elements of a fragment can't
// be named.
//
// Rows of the result and their longer form are multiples of four pixels; pixels are fewer than 2²².
//
// needs: T, TILE_M, TILE_N, SUBGROUPS_M, SUBGROUPS_N, ACTIVATION, lib/quotient, lib/activate

struct Params {
  // Pixels of all images, unused ones included, and of a row.
  pixels: u32,
  row_pixels: u32,
  // Of the result.
  height_out: u32,
  width_out: u32,
  groups: u32,
  // Of a group.
  filters: u32,
  channels: u32,
  // Of the source.
  height: u32,
  width: u32,
  filter_height: u32,
  step_y: u32,
  tap_y: i32,
  offset_y: i32,
  // The lowest place that a tap has in relation to a pixel; how much further the first tap is, and the distance to the
  // next.
  lowest_x: i32,
  first_x: i32,
  tap_x: i32,
  // Pixels that a step stages.
  staged: u32,
  steps: u32,
  biased: u32,
  input_offset: u32,
  filter_offset: u32,
  bias_offset: u32,
  output_offset: u32,
  tiles_m: u32,
  tiles_n: u32,
  tiles: u32,
  // 1 / row_pixels and 1 / height_out.
  per_row: f32,
  per_image: f32,
}

@group(0) @binding(0) var<storage, read> factors: array<vec4<f16>>;
@group(0) @binding(1) var<storage, read> input: array<T>;
@group(0) @binding(2) var<storage, read> bias: array<T>;
@group(0) @binding(3) var<storage, read_write> output: array<vec4<T>>;

// Invocations of a subgroup; the kernel runs only on devices where it is so.
const SUBGROUP: u32 = 32u;
const FRAGMENT: u32 = 16u;
const THREADS: u32 = SUBGROUPS_M * SUBGROUPS_N * SUBGROUP;
const PART_M: u32 = TILE_M / SUBGROUPS_M;
const PART_N: u32 = TILE_N / SUBGROUPS_N;
const FILTER_WIDTH: u32 = 3u;
// Vectors of a fragment of the filters.
const BLOCK: u32 = FRAGMENT * FRAGMENT / 4u;

// Pixels that can be staged: the tile's, and as many more as taps reach over. Their rows in workgroup memory, in vectors
// of four, are 16 bytes longer than 16 channels, against bank conflicts.
const STAGED: u32 = TILE_N + 16u;
const STRIDE: u32 = 6u;
// Two invocations stage a pixel, so many pixels at a time.
const TURN: u32 = THREADS / 2u;

const_assert TILE_M % SUBGROUPS_M == 0u && TILE_N % SUBGROUPS_N == 0u;
const_assert PART_M % FRAGMENT == 0u && PART_N % FRAGMENT == 0u;
const_assert STAGED <= 4u * TURN;

var<workgroup> sh_pixels: array<vec4<f16>, STAGED * STRIDE>;
// A fragment of each subgroup.
var<workgroup> sh_sums: array<f32, SUBGROUPS_M * SUBGROUPS_N * FRAGMENT * FRAGMENT>;

struct Tile {
  // The first filter, in its group, and the first pixel.
  row: u32,
  column: u32,
  group: u32,
}

// A row of the filter and 16 channels.
struct Step {
  row: u32,
  chunk: u32,
}

// For each turn: the element that an invocation begins to read at, for the filter's first row, and the row of the source
// that this is, which may lie beyond it. One that is far beyond marks what is 0 for every row of the filter.
var<private> held_at: vec4<u32>;
var<private> held_row: vec4<i32>;
const BEYOND: i32 = 0x40000000;

// Tiles of the same pixels follow each other, so that what they share is still in the cache.
fn tile_of(flat: u32) -> Tile {
  let across = flat / params.tiles_m;
  return Tile(flat % params.tiles_m * TILE_M, across % params.tiles_n * TILE_N, across / params.tiles_n);
}

// After the last step comes the first, whose pixels are fetched once more and not used.
fn step_after(step: Step) -> Step {
  let row = step.row + 1u;
  if row < params.filter_height {
    return Step(row, step.chunk);
  }
  let chunk = step.chunk + 1u;
  return Step(0u, select(0u, chunk, chunk < params.channels / FRAGMENT));
}

// Written out, because a compiler that doesn't unroll a loop over them would put them into memory.
fn hold(tile: Tile, index: u32) {
  let a = held(tile, index, 0u);
  let b = held(tile, index, 1u);
  let c = held(tile, index, 2u);
  let d = held(tile, index, 3u);
  held_at = vec4<u32>(a.at, b.at, c.at, d.at);
  held_row = vec4<i32>(a.row, b.row, c.row, d.row);
}

struct Held {
  at: u32,
  row: i32,
}

fn held(tile: Tile, index: u32, turn: u32) -> Held {
  let place = lane_place(index);
  let staged = place.x + turn * TURN;
  let flat = i32(tile.column + staged) + params.lowest_x;
  let pixel = small_quotient_rest(u32(max(flat, 0)), params.row_pixels, params.per_row);
  let row = small_quotient_rest(pixel.x, params.height_out, params.per_image);
  let y = i32(row.y * params.step_y) + params.offset_y;
  let exists = staged < params.staged && flat >= 0 && u32(flat) < params.pixels && pixel.y < params.width;
  let channel = (row.x * params.groups + tile.group) * params.channels + place.y * 8u;
  let at = params.input_offset + channel * plane() + u32(y) * params.width + pixel.y;
  return Held(at, select(BEYOND, y, exists));
}

fn plane() -> u32 {
  return params.height * params.width;
}

// Eight channels of a pixel.
struct Eight {
  first: vec4<f16>,
  last: vec4<f16>,
}

// An invocation's pixel in the first turn, and which half of the channels: a subgroup takes one half of its pixels, so
// that neighbours read neighbouring elements.
fn lane_place(index: u32) -> vec2<u32> {
  return vec2<u32>(index / (2u * SUBGROUP) * SUBGROUP + index % SUBGROUP, index / SUBGROUP % 2u);
}

fn fetch(step: Step, turn: u32) -> Eight {
  let row = i32(step.row) * params.tap_y;
  let inside = u32(held_row[turn] + row) < params.height;
  let next = plane();
  let at = select(0u, held_at[turn] + u32(row * i32(params.width)) + step.chunk * FRAGMENT * next, inside);
  let first = vec4<f16>(input[at], input[at + next], input[at + 2u * next], input[at + 3u * next]);
  let last = vec4<f16>(input[at + 4u * next], input[at + 5u * next], input[at + 6u * next], input[at + 7u * next]);
  return Eight(select(vec4<f16>(), first, inside), select(vec4<f16>(), last, inside));
}

fn stage(index: u32, turn: u32, eight: Eight) {
  let place = lane_place(index);
  let pixel = place.x + turn * TURN;
  if pixel < STAGED {
    let at = pixel * STRIDE + place.y * 2u;
    sh_pixels[at] = eight.first;
    sh_pixels[at + 1u] = eight.last;
  }
}

// A subgroup's (filter, pixel) in the tile.
fn part_of(subgroup: u32) -> vec2<u32> {
  return vec2<u32>(subgroup / SUBGROUPS_N * PART_M, subgroup % SUBGROUPS_N * PART_N);
}

// Vectors of the filters' fragments for one tap, and where those of a subgroup begin.
fn tap_blocks() -> u32 {
  return params.tiles_m * TILE_M / FRAGMENT * BLOCK;
}

fn start_of_factors(tile: Tile, subgroup: u32) -> u32 {
  let group = params.filter_offset / 4u + tile.group * params.steps * FILTER_WIDTH * tap_blocks();
  return group + (tile.row + part_of(subgroup).x) / FRAGMENT * BLOCK;
}

// Where a subgroup's pixels begin under a tap.
fn start_of_pixels(subgroup: u32, tap: i32) -> u32 {
  return (part_of(subgroup).y + u32(params.first_x + tap * params.tap_x)) * STRIDE;
}

// The first of a subgroup's sums in workgroup memory.
fn start_of_sums(subgroup: u32) -> u32 {
  return subgroup * FRAGMENT * FRAGMENT;
}

// Writes a fragment of each subgroup, which begins at (filter, pixel) `inner` of the subgroup's part, from workgroup
// memory to the output. Sums are read before the first is written: between conditional writes, each would be waited for.
fn write_out(tile: Tile, index: u32, inner: vec2<u32>) {
  let subgroup = index / SUBGROUP;
  let lane = index % SUBGROUP;
  let corner = vec2<u32>(tile.row, tile.column) + part_of(subgroup) + inner;
  let filter_index = corner.x + lane / 4u;
  let flat = corner.y + lane % 4u * 4u;
  let upper = four_sums(start_of_sums(subgroup) + 4u * lane);
  let lower = four_sums(start_of_sums(subgroup) + 4u * lane + 2u * BLOCK);

  let pixel = small_quotient_rest(flat, params.row_pixels, params.per_row);
  let row = small_quotient_rest(pixel.x, params.height_out, params.per_image);
  let plane_out = params.height_out * params.width_out;
  let first = (row.x * params.groups + tile.group) * params.filters + filter_index;
  let at = params.output_offset + first * plane_out + row.y * params.width_out + pixel.y;
  let f = tile.group * params.filters + filter_index;
  if flat < params.pixels && pixel.y < params.width_out {
    if filter_index < params.filters {
      output[at / 4u] = finish(upper, f);
    }
    if filter_index + FRAGMENT / 2u < params.filters {
      output[(at + FRAGMENT / 2u * plane_out) / 4u] = finish(lower, f + FRAGMENT / 2u);
    }
  }
}

fn four_sums(first: u32) -> vec4<f32> {
  return vec4<f32>(sh_sums[first], sh_sums[first + 1u], sh_sums[first + 2u], sh_sums[first + 3u]);
}

// Four results of the filter of this index, counted over all groups.
fn finish(sums: vec4<f32>, filter_index: u32) -> vec4<T> {
  var v = sums;
  if params.biased == 1u {
    v += f32(bias[params.bias_offset + filter_index]);
  }
  return vec4<T>(vec4<f32>(
    activate(ACTIVATION, v.x),
    activate(ACTIVATION, v.y),
    activate(ACTIVATION, v.z),
    activate(ACTIVATION, v.w),
  ));
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
  let tile = tile_of(flat);
  hold(tile, index);
  multiply(tile, index);
}
