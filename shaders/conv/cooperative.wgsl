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

// A place in the filter and a group of eight channels; or a distance from one to another, for which divisions would
// take longer than what is multiplied meanwhile.
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
  let first_filter = across / params.tiles_n * params.filters;
  let depth = taps();
  let steps = (depth + TILE_K - 1u) / TILE_K;
  let ld = depth / 8u;
  let base = params.filter_offset / 8u + first_filter * ld;
  let factors = Operand(base + row * ld, base + params.filters * ld - 1u, ld);
  // The right factor's place is held.
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
  held_tap = tap_at(lane_place(index, EIGHTS_B).y);
  held_step = tap_at(tile.head / 8u);
  held_whole_step = tap_at(TILE_K / 8u);
}

fn fetch_a(tile: Tile, at: u32, turn: u32) -> vec4<u32> {
  return a[min(at + turn * TURN_A * tile.a.ld, tile.a.last)];
}

// Groups are fetched from the held tap on, which goes on to the next step's with the last of them.
fn fetch_b(tile: Tile, at: u32, turn: u32) -> vec4<u32> {
  let tap = held_tap;
  let pixel = i32(tap.row) * params.tap_y * i32(params.width) + i32(tap.column) * params.tap_x;
  let bits = (held_rows[turn] >> tap.row) & (held_columns[turn] >> tap.column) & 1u;
  let inside = tap.row < params.filter_height && bits == 1u;
  let group = select(0u, held_first[turn] + u32(pixel) * pixel_eights() + tap.eight, inside);
  if turn == FETCHES_B - 1u {
    held_tap = tap_after(tap, held_step);
    held_step = held_whole_step;
  }
  return select(vec4<u32>(), b[group], inside);
}

// The tap that lies so many groups of eight channels after the first.
fn tap_at(eights: u32) -> Tap {
  let outer = quotient_rest(eights, params.channels / 8u, params.per_outer);
  let inner = quotient_rest(outer.x, params.filter_width, params.per_filter_row);
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
    // Read before the first is written: between conditional writes, each would be waited for.
    let upper = vec2<u32>(lane / (FRAGMENT / 4u), lane % (FRAGMENT / 4u) * 4u);
    let lower = upper + vec2<u32>(FRAGMENT / 2u, 0u);
    let first = select(upper, upper.yx, interleaved);
    let second = select(lower, lower.yx, interleaved);
    let along = select(1u, STRIDE_C, interleaved);
    let first_sums = four_sums(sums + first.x * STRIDE_C + first.y, along);
    let second_sums = four_sums(sums + second.x * STRIDE_C + second.y, along);
    write_vector(tile, corner + first, first_sums);
    write_vector(tile, corner + second, second_sums);
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

fn four_sums(first: u32, along: u32) -> vec4<f32> {
  return vec4<f32>(sh_c[first], sh_c[first + along], sh_c[first + 2u * along], sh_c[first + 3u * along]);
}

fn write_vector(tile: Tile, place: vec2<u32>, sums: vec4<f32>) {
  if place.x < params.filters && place.y < params.rows {
    let pixel = quotient_rest(place.y, params.pixels, params.per_image);
    let f = tile.first_filter + place.x;
    let next = select(0u, 1u, params.interleaved_out == 1u);
    output4[result_at(pixel.x, pixel.y, f) / 4u] = vec4<T>(
      finish(sums.x, f),
      finish(sums.y, f + next),
      finish(sums.z, f + 2u * next),
      finish(sums.w, f + 3u * next),
    );
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
