// Where the filter of a convolution whose taps lie at whole positions is for a result. There are fewer than
// 2²² images, rows in one, and channels.
//
// needs: lib/conv, lib/quotient

// From the first channel's first element of the first image to where the first tap would be, and the rows and
// columns of the filter that lie in the image, as bits. A result that doesn't exist has none.
struct InputOrigin {
  at: u32,
  rows: u32,
  columns: u32,
}

fn input_origin_of(row: u32) -> InputOrigin {
  let place = small_quotient_rest(row, params.pixels, params.per_image);
  let pixel = small_quotient_rest(place.y, params.out_width, params.per_row);
  let y = i32(pixel.x * params.step_y) + params.offset_y;
  let x = i32(pixel.y * params.step_x) + params.offset_x;
  let at = place.x * image_step() + u32(y * i32(params.width) + x) * column_step();
  let rows = taps_inside(y, params.tap_y, params.filter_height, params.height);
  let columns = taps_inside(x, params.tap_x, params.filter_width, params.width);
  return InputOrigin(at, select(0u, rows, row < params.rows), columns);
}

// Which of up to 31 taps lie in the source, as bits, for a result whose first tap is at `first`.
fn taps_inside(first: i32, tap: i32, count: u32, extent: u32) -> u32 {
  if tap == 1 {
    let low = u32(clamp(-first, 0, i32(count)));
    let high = u32(clamp(i32(extent) - first, 0, i32(count)));
    return (1u << high) - (1u << low);
  }
  var bits = 0u;
  var at = first;
  for (var t = 0u; t < count; t++) {
    bits |= select(0u, 1u, u32(at) < extent) << t;
    at += tap;
  }
  return bits;
}
