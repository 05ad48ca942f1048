// The source of a convolution whose taps lie at whole positions, with adjacent channels, a multiple of four
// in a group: four taps are a vector.
//
// needs: lib/conv, lib/quotient, lib/input_origin, lib/tile_product, input4

const A_ALONG_K: u32 = 1u;

// Blocks of a step that an invocation fetches, each of other results, and from one to the next.
const ITERATIONS_A: u32 = (BLOCKS_A + THREADS - 1u) / THREADS;
const ITERATION_ROWS: u32 = 4u * (THREADS / BLOCKS_K);

// As in lib/source_window, for each of these.
var<private> held: array<u32, ITERATIONS_A>;
var<private> held_first: array<vec4<u32>, ITERATIONS_A>;
var<private> held_rows: array<vec4<u32>, ITERATIONS_A>;
var<private> held_columns: array<vec4<u32>, ITERATIONS_A>;

fn hold(tile: Tile, iteration: u32, row: u32) {
  let base = params.input_offset + tile.batch * params.channels;
  let a = input_origin_of(row);
  let b = input_origin_of(row + 1u);
  let c = input_origin_of(row + 2u);
  let d = input_origin_of(row + 3u);
  held[iteration] = row + 1u;
  held_first[iteration] = base + vec4<u32>(a.at, b.at, c.at, d.at);
  held_rows[iteration] = vec4<u32>(a.rows, b.rows, c.rows, d.rows);
  held_columns[iteration] = vec4<u32>(a.columns, b.columns, c.columns, d.columns);
}

// Four results by four taps, or by none.
fn block_a(tile: Tile, origin: vec2<u32>, lane: vec2<u32>, count: u32) -> mat4x4<f32> {
  let place = origin + lane;
  let iteration = (origin.x - tile.row) / ITERATION_ROWS;
  if held[iteration] != place.x + 1u {
    hold(tile, iteration, place.x);
  }
  let outer = small_quotient_rest(place.y, params.channels, params.per_outer);
  let inner = small_quotient_rest(outer.x, params.filter_width, params.per_filter_row);
  var block = mat4x4<f32>();
  if inner.x < params.filter_height && count > 0u {
    let pixel = i32(inner.x) * params.tap_y * i32(params.width) + i32(inner.y) * params.tap_x;
    let tap = u32(pixel) * column_step() + outer.y;
    let first = held_first[iteration] + tap;
    let inside = (held_rows[iteration] >> vec4<u32>(inner.x)) & (held_columns[iteration] >> vec4<u32>(inner.y)) & vec4<u32>(1u);
    if inside.x == 1u { block[0] = vec4<f32>(input4[first.x / 4u]); }
    if inside.y == 1u { block[1] = vec4<f32>(input4[first.y / 4u]); }
    if inside.z == 1u { block[2] = vec4<f32>(input4[first.z / 4u]); }
    if inside.w == 1u { block[3] = vec4<f32>(input4[first.w / 4u]); }
  }
  return transpose(block);
}
