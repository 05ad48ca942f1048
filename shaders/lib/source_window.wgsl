// The source of a convolution whose channels are planes and whose taps lie at whole positions: which taps of a result
// lie in the image is known as bits, and where they are is a sum of two numbers, one of the result and one of the tap.
//
// needs: lib/conv, lib/quotient, Tile

const A_ALONG_K: u32 = 0u;

// The first of four neighbouring results, and for each of them: where its first tap would be, and the rows and columns
// of the filter that lie in the image. An invocation asks for the same results again and again.
var<private> held: u32 = 0xffffffffu;
var<private> held_first: vec4<u32>;
var<private> held_rows: vec4<u32>;
var<private> held_columns: vec4<u32>;

fn hold(tile: Tile, row: u32) {
  held = row;
  let base = params.input_offset + tile.batch * params.channels * channel_step();
  for (var i = 0u; i < 4u; i++) {
    let place = quotient_rest(row + i, params.pixels, params.per_image);
    let pixel = quotient_rest(place.y, params.out_width, params.per_row);
    let y = i32(pixel.x * params.step_y) + params.offset_y;
    let x = i32(pixel.y * params.step_x) + params.offset_x;
    held_first[i] = base + place.x * image_step() + u32(y * i32(params.width) + x);
    let exists = row + i < params.rows;
    held_rows[i] = select(0u, taps_inside(y, params.tap_y, params.filter_height, params.height), exists);
    held_columns[i] = taps_inside(x, params.tap_x, params.filter_width, params.width);
  }
}

// Four results by four taps, of which `count` are to be had.
fn block_a(tile: Tile, corner: vec2<u32>, lane: vec2<u32>, count: u32) -> mat4x4<f32> {
  let place = corner + lane;
  if held != place.x {
    hold(tile, place.x);
  }
  let window = params.filter_height * params.filter_width;
  let outer = quotient_rest(place.y, window, params.per_outer);
  let inner = quotient_rest(outer.y, params.filter_width, params.per_filter_row);
  var channel = outer.x;
  var r = inner.x;
  var s = inner.y;
  var block = mat4x4<f32>();
  for (var i = 0u; i < 4u; i++) {
    let tap = channel * channel_step() + u32(i32(r) * params.tap_y * i32(params.width) + i32(s) * params.tap_x);
    let inside = (held_rows >> vec4<u32>(r)) & (held_columns >> vec4<u32>(s)) & vec4<u32>(1u);
    if i < count && channel < params.channels {
      if inside.x == 1u { block[i].x = f32(input[held_first.x + tap]); }
      if inside.y == 1u { block[i].y = f32(input[held_first.y + tap]); }
      if inside.z == 1u { block[i].z = f32(input[held_first.z + tap]); }
      if inside.w == 1u { block[i].w = f32(input[held_first.w + tap]); }
    }
    s += 1u;
    if s == params.filter_width {
      s = 0u;
      r += 1u;
      if r == params.filter_height {
        r = 0u;
        channel += 1u;
      }
    }
  }
  return block;
}
