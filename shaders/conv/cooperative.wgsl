// Convolution and its transposition (lib/conv) as a matrix product that is never written out, of f16, multiplied by the
// device's matrix units, which add in f32: its rows are the filters of a group, its columns the result's pixels of the
// whole batch, and what is summed over are the filter's taps.
//
// It is gemm/cooperative with another right factor: a group of eight channels is read from where a tap of the filter lies
// over the source, whose channels are adjacent and a multiple of eight in a group. The step itself, `multiply`, is
// written by src/ops/matmul/fragments.rs and calls the functions of this file and of lib/fragments.
//
// needs: T, ACTIVATION, lib/conv, lib/quotient, lib/corner, and what lib/fragments needs

@group(0) @binding(0) var<storage, read> a: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> bias: array<T>;
@group(0) @binding(3) var<storage, read_write> output: array<T>;
// The output once more, for writing vectors.
@group(0) @binding(4) var<storage, read_write> output4: array<vec4<T>>;

struct Tile {
  row: u32,
  column: u32,
  first_filter: u32,
  a: Operand,
  b: Operand,
  // How much of the taps the first step takes, and how many steps there are.
  head: u32,
  steps: u32,
}

// Columns of which an invocation fetches groups.
const FETCHES_B: u32 = ROWS_B / TURN_B;
const_assert FETCHES_B <= 4u;

// For each of these: where its first tap would be in the source, in groups of eight, and which rows and columns of the
// filter lie in the image.
var<private> held_first: vec4<u32>;
var<private> held_rows: vec4<u32>;
var<private> held_columns: vec4<u32>;

// Tiles of the same pixels follow each other, so that what they share is still in the cache.
fn tile_of(flat: u32) -> Tile {
  let across = flat / params.tiles_m;
  let row = flat % params.tiles_m * TILE_M;
  let column = across % params.tiles_n * TILE_N;
  let first_filter = across / params.tiles_n * params.filters;
  let depth = taps();
  let steps = (depth + TILE_K - 1u) / TILE_K;
  let ld = depth / 8u;
  let base = params.filter_offset / 8u + first_filter * ld;
  let factors = Operand(base + row * ld, base + params.filters * ld - 1u, ld);
  // The right factor's place is the number of its group of eight taps.
  return Tile(row, column, first_filter, factors, Operand(0u, 0u, 0u), depth - (steps - 1u) * TILE_K, steps);
}

// Groups of eight from one pixel of the source to the next.
fn pixel_eights() -> u32 {
  return params.groups * params.channels / 8u;
}

// Written out, because a compiler that doesn't unroll a loop over them would put them into memory.
fn hold(tile: Tile, index: u32) {
  let group = tile.first_filter / params.filters;
  let base = params.input_offset + group * params.channels;
  let first = tile.column + lane_place(index, EIGHTS_B).x;
  let a = corner_of(first);
  let b = corner_of(first + (1u % FETCHES_B) * TURN_B);
  let c = corner_of(first + (2u % FETCHES_B) * TURN_B);
  let d = corner_of(first + (3u % FETCHES_B) * TURN_B);
  // A tap may lie before the image, so that the sign counts.
  held_first = bitcast<vec4<u32>>(bitcast<vec4<i32>>(base + vec4<u32>(a.at, b.at, c.at, d.at)) >> vec4<u32>(3u));
  held_rows = vec4<u32>(a.rows, b.rows, c.rows, d.rows);
  held_columns = vec4<u32>(a.columns, b.columns, c.columns, d.columns);
}

fn fetch_a(tile: Tile, at: u32, turn: u32) -> vec4<u32> {
  return a[min(at + turn * TURN_A * tile.a.ld, tile.a.last)];
}

fn fetch_b(tile: Tile, at: u32, turn: u32) -> vec4<u32> {
  let outer = quotient_rest(at, params.channels / 8u, params.per_outer);
  let inner = quotient_rest(outer.x, params.filter_width, params.per_filter_row);
  let pixel = i32(inner.x) * params.tap_y * i32(params.width) + i32(inner.y) * params.tap_x;
  let inside = (held_rows[turn] >> inner.x) & (held_columns[turn] >> inner.y) & 1u;
  var group = vec4<u32>();
  if inner.x < params.filter_height && inside == 1u {
    group = b[held_first[turn] + u32(pixel) * pixel_eights() + outer.y];
  }
  return group;
}

// A group of the first step, with 0 for what lies beyond it.
fn keep_a(tile: Tile, index: u32, turn: u32, group: vec4<u32>) -> vec4<u32> {
  return select(vec4<u32>(), group, lane_place(index, EIGHTS_A).y * 8u < tile.head);
}

fn keep_b(tile: Tile, index: u32, turn: u32, group: vec4<u32>) -> vec4<u32> {
  return select(vec4<u32>(), group, lane_place(index, EIGHTS_B).y * 8u < tile.head);
}

// Writes a fragment of each subgroup, which begins at `inner` of the subgroup's part, from workgroup memory to the
// output. Its rows are filters, its columns pixels.
fn write_out(tile: Tile, index: u32, inner: vec2<u32>) {
  let subgroup = index / SUBGROUP;
  let lane = index % SUBGROUP;
  let corner = vec2<u32>(tile.row, tile.column) + part_of(subgroup) + inner;
  let sums = start_c(subgroup);
  let interleaved = params.interleaved_out == 1u;
  let adjacent = select(params.pixels, params.filters, interleaved);
  if (params.output_offset | adjacent) % 4u == 0u {
    let along = select(1u, STRIDE_C, interleaved);
    for (var i = lane; i < FRAGMENT * FRAGMENT / 4u; i += SUBGROUP) {
      var cell = vec2<u32>(i / (FRAGMENT / 4u), i % (FRAGMENT / 4u) * 4u);
      if interleaved {
        cell = cell.yx;
      }
      let place = corner + cell;
      if place.x < params.filters && place.y < params.rows {
        let pixel = quotient_rest(place.y, params.pixels, params.per_image);
        let f = tile.first_filter + place.x;
        let next = select(0u, 1u, interleaved);
        let sum = sums + cell.x * STRIDE_C + cell.y;
        output4[result_at(pixel.x, pixel.y, f) / 4u] = vec4<T>(
          finish(sh_c[sum], f),
          finish(sh_c[sum + along], f + next),
          finish(sh_c[sum + 2u * along], f + 2u * next),
          finish(sh_c[sum + 3u * along], f + 3u * next),
        );
      }
    }
  } else {
    for (var i = lane; i < FRAGMENT * FRAGMENT; i += SUBGROUP) {
      let cell = vec2<u32>(i / FRAGMENT, i % FRAGMENT);
      let place = corner + cell;
      if place.x < params.filters && place.y < params.rows {
        let pixel = quotient_rest(place.y, params.pixels, params.per_image);
        let f = tile.first_filter + place.x;
        output[result_at(pixel.x, pixel.y, f)] = finish(sh_c[sums + cell.x * STRIDE_C + cell.y], f);
      }
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
  let tile = tile_of(flat);
  hold(tile, index);
  multiply(tile, index);
}
