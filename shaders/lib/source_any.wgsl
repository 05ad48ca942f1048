// The source of any convolution, element by element.
//
// needs: lib/conv, Tile

const A_ALONG_K: u32 = 0u;

fn source_element(tile: Tile, row: u32, k: u32) -> f32 {
  if row >= params.rows || k >= taps() {
    return 0.0;
  }
  let image = row / params.pixels;
  let pixel = row % params.pixels;
  let window = params.filter_height * params.filter_width;
  let channel = select(k / window, k % params.channels, params.interleaved == 1u);
  let place = select(k % window, k / params.channels, params.interleaved == 1u);
  let y = source_row(pixel / params.out_width, place / params.filter_width);
  let x = source_column(pixel % params.out_width, place % params.filter_width);
  if y >= params.height || x >= params.width {
    return 0.0;
  }
  let at = image * image_step() + (tile.batch * params.channels + channel) * channel_step();
  return f32(input[params.input_offset + at + y * row_step() + x * column_step()]);
}

// Four results by four taps, of which `count` are to be had.
fn block_a(tile: Tile, origin: vec2<u32>, lane: vec2<u32>, count: u32) -> mat4x4<f32> {
  let place = origin + lane;
  var block = mat4x4<f32>();
  for (var i = 0u; i < count; i++) {
    for (var j = 0u; j < 4u; j++) {
      block[i][j] = source_element(tile, place.x + j, place.y + i);
    }
  }
  return block;
}
