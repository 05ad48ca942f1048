// The source of a convolution whose taps lie at whole positions, with adjacent channels, a multiple of four in a group:
// four taps are a vector.
//
// needs: lib/conv, lib/quotient, Tile, input4

const A_ALONG_K: u32 = 1u;

// As in lib/source_window.
var<private> held: u32 = 0xffffffffu;
var<private> held_first: vec4<u32>;
var<private> held_rows: vec4<u32>;
var<private> held_columns: vec4<u32>;

fn hold(tile: Tile, row: u32) {
  held = row;
  let base = params.input_offset + tile.batch * params.channels;
  for (var i = 0u; i < 4u; i++) {
    let place = quotient_rest(row + i, params.pixels, params.per_image);
    let pixel = quotient_rest(place.y, params.out_width, params.per_row);
    let y = i32(pixel.x * params.step_y) + params.offset_y;
    let x = i32(pixel.y * params.step_x) + params.offset_x;
    let first = base + place.x * image_step() + u32(y * i32(params.width) + x) * column_step();
    held_first[i] = first;
    let exists = row + i < params.rows;
    held_rows[i] = select(0u, taps_inside(y, params.tap_y, params.filter_height, params.height), exists);
    held_columns[i] = taps_inside(x, params.tap_x, params.filter_width, params.width);
  }
}

fn block_a(tile: Tile, place: vec2<u32>) -> mat4x4<f32> {
  if held != place.x {
    hold(tile, place.x);
  }
  let outer = quotient_rest(place.y, params.channels, params.per_outer);
  let inner = quotient_rest(outer.x, params.filter_width, params.per_filter_row);
  var block = mat4x4<f32>();
  if inner.x < params.filter_height {
    let pixel = i32(inner.x) * params.tap_y * i32(params.width) + i32(inner.y) * params.tap_x;
    let tap = u32(pixel) * column_step() + outer.y;
    let inside = (held_rows >> vec4<u32>(inner.x)) & (held_columns >> vec4<u32>(inner.y)) & vec4<u32>(1u);
    if inside.x == 1u { block[0] = vec4<f32>(input4[(held_first.x + tap) / 4u]); }
    if inside.y == 1u { block[1] = vec4<f32>(input4[(held_first.y + tap) / 4u]); }
    if inside.z == 1u { block[2] = vec4<f32>(input4[(held_first.z + tap) / 4u]); }
    if inside.w == 1u { block[3] = vec4<f32>(input4[(held_first.w + tap) / 4u]); }
  }
  return transpose(block);
}
