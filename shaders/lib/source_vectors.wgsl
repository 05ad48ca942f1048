// The source of a convolution whose taps lie at whole positions, with adjacent channels, a multiple of four in a group:
// four taps are a vector.
//
// needs: lib/conv, lib/quotient, lib/tile_product, input4

const A_ALONG_K: u32 = 1u;

// Blocks of a step that an invocation fetches, each of other results, and from one to the next.
const TURNS_A: u32 = (BLOCKS_A + THREADS - 1u) / THREADS;
const TURN_ROWS: u32 = 4u * (THREADS / BLOCKS_K);

// As in lib/source_window, for each of these.
var<private> held: array<u32, TURNS_A>;
var<private> held_first: array<vec4<u32>, TURNS_A>;
var<private> held_rows: array<vec4<u32>, TURNS_A>;
var<private> held_columns: array<vec4<u32>, TURNS_A>;

fn hold(tile: Tile, turn: u32, row: u32) {
  held[turn] = row + 1u;
  let base = params.input_offset + tile.batch * params.channels;
  for (var i = 0u; i < 4u; i++) {
    let place = quotient_rest(row + i, params.pixels, params.per_image);
    let pixel = quotient_rest(place.y, params.out_width, params.per_row);
    let y = i32(pixel.x * params.step_y) + params.offset_y;
    let x = i32(pixel.y * params.step_x) + params.offset_x;
    held_first[turn][i] = base + place.x * image_step() + u32(y * i32(params.width) + x) * column_step();
    let exists = row + i < params.rows;
    let rows = taps_inside(y, params.tap_y, params.filter_height, params.height);
    held_rows[turn][i] = select(0u, rows, exists);
    held_columns[turn][i] = taps_inside(x, params.tap_x, params.filter_width, params.width);
  }
}

// Four results by four taps, or by none.
fn block_a(tile: Tile, corner: vec2<u32>, lane: vec2<u32>, count: u32) -> mat4x4<f32> {
  let place = corner + lane;
  let turn = (corner.x - tile.row) / TURN_ROWS;
  if held[turn] != place.x + 1u {
    hold(tile, turn, place.x);
  }
  let outer = quotient_rest(place.y, params.channels, params.per_outer);
  let inner = quotient_rest(outer.x, params.filter_width, params.per_filter_row);
  var block = mat4x4<f32>();
  if inner.x < params.filter_height && count > 0u {
    let pixel = i32(inner.x) * params.tap_y * i32(params.width) + i32(inner.y) * params.tap_x;
    let tap = u32(pixel) * column_step() + outer.y;
    let first = held_first[turn] + tap;
    let inside = (held_rows[turn] >> vec4<u32>(inner.x)) & (held_columns[turn] >> vec4<u32>(inner.y)) & vec4<u32>(1u);
    if inside.x == 1u { block[0] = vec4<f32>(input4[first.x / 4u]); }
    if inside.y == 1u { block[1] = vec4<f32>(input4[first.y / 4u]); }
    if inside.z == 1u { block[2] = vec4<f32>(input4[first.z / 4u]); }
    if inside.w == 1u { block[3] = vec4<f32>(input4[first.w / 4u]); }
  }
  return transpose(block);
}
