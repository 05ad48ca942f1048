// 3×3 convolution that moves by single pixels, of f16 with adjacent channels, multiplied by the device's
// tensor cores, which add in f32. A tile of pixels is staged with its halo once for all nine taps, sixteen
// channels at a time; weights go from memory straight into fragments, in the order of conv/weight_fragments.
//
// Images are taken for one plane of cells: a row of cells has zeros for the padding at its left, and the rows
// of an image begin with one of zeros. What lies beyond the end of a row is the next row's padding, and of the
// last row the next image's, so that a tap is at the same distance from every pixel. A tile's cells are
// `pitch` in a row: as many as in a row of the plane, with TILE_P pixels that follow each other, or as many as
// a block of fragments needs. A fragment of pixels is in one row of a block, or anywhere.
//
// Each invocation has four adjacent channels of a filter's weights, where a fragment has two from either half.
// It is the order of the staged channels that is changed instead, which leaves the sums as they are.
//
// The step itself, `multiply`, is written by src/ops/conv/halo.rs: its loops over fragments have to be
// unrolled.
//
// needs: T, TILE_P, TILE_F, PARTS_P, PARTS_F, CELLS, PLANES (of the result), ACTIVATION, lib/activate, lib/quotient,
// lib/fragment_elements, lib/workgroup_tiles

const SUBGROUP: u32 = 32u;
const FRAGMENT: u32 = 16u;
const THREADS: u32 = PARTS_P * PARTS_F * SUBGROUP;
const PART_P: u32 = TILE_P / PARTS_P;
const PART_F: u32 = TILE_F / PARTS_F;
const_assert PART_P % FRAGMENT == 0u && PART_F % FRAGMENT == 0u;

// Vectors of four of a cell: sixteen channels, and 16 bytes against bank conflicts.
const STRIDE: u32 = 6u;
var<workgroup> sh: array<vec4<f16>, CELLS * STRIDE>;

// Groups of eight channels that an invocation stages.
const FETCHES: u32 = (2u * CELLS + THREADS - 1u) / THREADS;
const_assert FETCHES <= 8u;
const NOWHERE: u32 = 0xffffffffu;

struct Tile {
  // Row and column of the plane of cells that the tile's first cell has, and how many cells after these.
  row: u32,
  column: u32,
  start: u32,
  filter_index: u32,
}

fn tile_of(flat: u32) -> Tile {
  let pixels = flat / params.tiles_f;
  let down = pixels / params.tiles_across;
  let across = pixels % params.tiles_across;
  let first = across * params.tile_columns;
  let follow = params.tile_rows == 0u;
  return Tile(
    down * params.tile_rows,
    select(first, 0u, follow),
    select(0u, first, follow),
    flat % params.tiles_f * TILE_F,
  );
}

// A cell's image, and its row and column there, from the padding on.
fn place_of(tile: Tile, cell: u32) -> vec3<u32> {
  let at = small_quotient_rest(tile.start + cell, params.pitch, params.per_pitch);
  let image = small_quotient_rest(tile.row + at.x, params.height + 1u, params.per_image);
  return vec3<u32>(image.x, image.y, tile.column + at.y);
}

// Where the first channels of a group of eight of a cell are, if these aren't zeros.
fn source_of(tile: Tile, index: u32, iteration: u32) -> u32 {
  let i = iteration * THREADS + index;
  let place = place_of(tile, i / 2u);
  let y = place.y - 1u;
  let x = place.z - 1u;
  let inside = place.x < params.images && y < params.height && x < params.width;
  let pixel = (place.x * params.height + y) * params.width + x;
  return select(NOWHERE, (params.input_offset + pixel * params.channels) / 8u + i % 2u, inside);
}

fn fetch(source: u32, group: u32) -> vec4<u32> {
  let inside = source != NOWHERE;
  return select(vec4<u32>(), input[select(0u, source + group, inside)], inside);
}

// Puts eight channels of a cell to where the fragments of weights have them.
fn stage(index: u32, iteration: u32, group: vec4<u32>) {
  let i = iteration * THREADS + index;
  if i < 2u * params.cells {
    let at = i / 2u * STRIDE + i % 2u;
    sh[at] = halves(group.xz);
    sh[at + 2u] = halves(group.yw);
  }
}

// From the fragment of weights of a tap to that of the next.
fn tap_step() -> u32 {
  return params.channels / FRAGMENT * SUBGROUP;
}

// Where an invocation's first weights of the fragment of filters `j` are. Beyond the last, it is another.
fn weights_at(tile: Tile, part: u32, lane: u32, j: u32) -> u32 {
  let fragment = (tile.filter_index + part * PART_F) / FRAGMENT + j;
  let last = (params.filters - 1u) / FRAGMENT;
  return params.weights_offset / 8u + min(fragment, last) * (9u * tap_step()) + lane;
}

// An invocation's eight adjacent results of a fragment. `f` are the filters of its columns, or of its rows
// where these are planes.
fn results(lane: u32, v: Elements, bias_low: vec4<f32>, bias_high: vec4<f32>) -> vec4<u32> {
  return exchanged(lane, vec4<u32>(results_of_four(v.low + bias_low), results_of_four(v.high + bias_high)));
}

fn results_of_four(v: vec4<f32>) -> vec2<u32> {
  return vec2<u32>(
    pack2x16float(vec2<f32>(activate(ACTIVATION, v.x), activate(ACTIVATION, v.y))),
    pack2x16float(vec2<f32>(activate(ACTIVATION, v.z), activate(ACTIVATION, v.w))),
  );
}

fn bias_at(filter_index: u32) -> f32 {
  return f32(bias[params.bias_offset + min(filter_index, params.filters - 1u)]);
}

// The bias of what an invocation has of a fragment whose first filter is `f`: of its low elements, and of its
// high ones.
fn bias_low(lane: u32, f: u32) -> vec4<f32> {
  if params.biased == 0u {
    return vec4<f32>();
  }
  if PLANES == 1u {
    return vec4<f32>(bias_at(f + lane / 4u));
  }
  let first = f + lane % 4u * 2u;
  return vec4<f32>(bias_at(first), bias_at(first + 1u), bias_at(first + 8u), bias_at(first + 9u));
}

fn bias_high(lane: u32, f: u32, low: vec4<f32>) -> vec4<f32> {
  if params.biased == 0u || PLANES == 0u {
    return low;
  }
  return vec4<f32>(bias_at(f + lane / 4u + FRAGMENT / 2u));
}

// Where the results of an invocation begin in the fragment of pixels `fragment`, in vec8s; NOWHERE if
// there are none. Those of the first fragment of filters.
struct Row {
  at: u32,
  filter_index: u32,
}

fn row_of(tile: Tile, part: vec2<u32>, lane: u32, fragment: u32) -> Row {
  let down = lane / 4u + lane / 2u % 2u * (FRAGMENT / 2u);
  let across = lane % 2u * (FRAGMENT / 2u);
  let inner = select(down, across, PLANES == 1u);
  let f = tile.filter_index + part.y * PART_F + select(across, down, PLANES == 1u);
  let cell = (part.x * (PART_P / FRAGMENT) + fragment) * params.fragment_step + inner;
  let place = place_of(tile, cell);
  let inside = place.x < params.images && place.y < params.height && place.z < params.width;
  let adjacent = ((place.x * params.height + place.y) * params.width + place.z) * params.filters + f;
  let plane = ((place.x * params.filters + f) * params.height + place.y) * params.width + place.z;
  let at = (params.output_offset + select(adjacent, plane, PLANES == 1u)) / 8u;
  return Row(select(NOWHERE, at, inside), f);
}

// Writes the results of the fragment of filters `j`.
fn write_out(row: Row, j: u32, v: vec4<u32>) {
  if row.at != NOWHERE && row.filter_index + j * FRAGMENT < params.filters {
    let step = select(FRAGMENT, FRAGMENT * params.height * params.width, PLANES == 1u) / 8u;
    output[row.at + j * step] = v;
  }
}

fn make_tile(flat: u32, index: u32) {
  multiply(tile_of(flat), index);
}
