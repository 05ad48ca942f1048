// What the kernels of convolutions share: their parameters, where things lie, and what becomes of a sum.
//
// A result is made of the numbers that the source has under the taps of a filter. Along each axis, tap t of
// the result at x meets the source at (x · step + t · tap + offset) / divide, if that is whole. A convolution
// has its stride as step and its dilation as tap; its transposition divides by the stride and goes backwards.
//
// needs: ACTIVATION, bias, lib/activate

// Products in a result.
fn taps() -> u32 {
  return params.channels * params.filter_height * params.filter_width;
}

// Distances in the source: from one channel, row, column and image to the next.
fn channel_step() -> u32 {
  return select(params.height * params.width, 1u, params.interleaved == 1u);
}

fn column_step() -> u32 {
  return select(1u, params.groups * params.channels, params.interleaved == 1u);
}

fn row_step() -> u32 {
  return params.width * column_step();
}

fn image_step() -> u32 {
  return params.groups * params.channels * params.height * params.width;
}

// The element of the result for a filter, counted over all groups, at a pixel of an image.
fn result_at(image: u32, pixel: u32, filter_index: u32) -> u32 {
  let all = params.groups * params.filters;
  if params.interleaved == 1u {
    return params.output_offset + (image * params.pixels + pixel) * all + filter_index;
  }
  return params.output_offset + (image * all + filter_index) * params.pixels + pixel;
}

// The position in the source, or one past every position if there is none.
fn source_position(x: u32, tap_index: u32, step: u32, tap: i32, offset: i32, divide_by: u32) -> u32 {
  let at = i32(x * step) + i32(tap_index) * tap + offset;
  if at < 0 || u32(at) % divide_by != 0u {
    return 0xffffffffu;
  }
  return u32(at) / divide_by;
}

fn source_row(y: u32, r: u32) -> u32 {
  return source_position(y, r, params.step_y, params.tap_y, params.offset_y, params.divide_y);
}

fn source_column(x: u32, s: u32) -> u32 {
  return source_position(x, s, params.step_x, params.tap_x, params.offset_x, params.divide_x);
}

// A result of the filter of this index, not yet rounded to its type.
fn finish(sum: f32, filter_index: u32) -> f32 {
  var v = sum;
  if params.biased == 1u {
    v += f32(bias[params.bias_offset + filter_index]);
  }
  return activate(ACTIVATION, v);
}
