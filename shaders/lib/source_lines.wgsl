// The source of a convolution whose channels are planes and whose filter is three columns wide, moves by one
// pixel along a row and reaches one beyond it: rows of the source and of the result are equally long,
// multiples of four. Under a row of the filter, four neighbouring results have four neighbouring pixels, read
// at once, and one to the left and to the right.
//
// needs: lib/conv, lib/quotient, lib/tile_product, input4

const A_ALONG_K: u32 = 0u;

// Four neighbouring results: the source's row under the filter's first, which may lie beyond it, the pixel
// there that is under the filter's middle, and whether those beside the four exist. An invocation asks for
// the same again and again.
var<private> held: u32 = 0xffffffffu;
var<private> held_row: u32;
var<private> held_at: u32;
var<private> held_left: bool;
var<private> held_right: bool;
const BEYOND: u32 = 0x40000000u;

fn hold(tile: Tile, row: u32) {
  let place = small_quotient_rest(row, params.pixels, params.per_image);
  let pixel = small_quotient_rest(place.y, params.out_width, params.per_row);
  let y = pixel.x * params.step_y + u32(params.offset_y);
  let base = params.input_offset + tile.batch * params.channels * channel_step();
  held = row;
  held_row = select(BEYOND, y, row < params.rows);
  held_at = base + place.x * image_step() + y * params.width + pixel.y;
  held_left = pixel.y > 0u;
  held_right = pixel.y + 4u < params.width;
}

// Four results by the three taps of a row of the filter, or by none.
fn block_a(tile: Tile, origin: vec2<u32>, lane: vec2<u32>, count: u32) -> mat4x4<f32> {
  let place = origin + lane;
  if held != place.x {
    hold(tile, place.x);
  }
  let line = small_quotient_rest(place.y / 3u, params.filter_height, params.per_outer);
  let down = line.y * u32(params.tap_y);
  let at = held_at + line.x * channel_step() + down * params.width;
  // Each is read whether it exists or not, because branches would be waited for.
  let inside = count > 0u && line.x < params.channels && held_row + down < params.height;
  let left_inside = inside && held_left;
  let right_inside = inside && held_right;
  let four = select(vec4<f32>(), vec4<f32>(input4[select(0u, at / 4u, inside)]), inside);
  let left = select(0.0, f32(input[select(0u, at - 1u, left_inside)]), left_inside);
  let right = select(0.0, f32(input[select(0u, at + 4u, right_inside)]), right_inside);
  return mat4x4<f32>(vec4<f32>(left, four.xyz), four, vec4<f32>(four.yzw, right), vec4<f32>());
}
