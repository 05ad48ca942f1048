// Copies f16 images of few channels, and filters after them, to where FOLD neighbouring pixels of a row are
// one of eight channels: a stride of FOLD becomes one of 1, and tensor cores multiply fewer zeros. An
// invocation copies eight channels. To this kernel, a filter is an image that begins `shift` pixels before
// its first.
//
// needs: T, lib/eight_copies, lib/packed_eight

// Where the channel `j` of the eight `i` is, or 0xffffffff if it is beyond its row or there is no such channel.
fn source_of(i: u32, j: u32, height: u32, width: u32, width_out: u32, shift: u32) -> u32 {
  let fold = 8u / params.channels_out;
  let row = i / width_out;
  let x = i % width_out * fold + j / params.channels_out - shift;
  let channel = j % params.channels_out;
  let planes = ((row / height * params.channels + channel) * height + row % height) * width + x;
  let adjacent = (row * width + x) * params.channels + channel;
  let inside = x < width && channel < params.channels;
  return select(0xffffffffu, select(planes, adjacent, params.interleaved == 1u), inside);
}

fn copy_image(i: u32) {
  var numbers: array<f32, 8>;
  for (var j = 0u; j < 8u; j++) {
    let at = source_of(i, j, params.height, params.width, params.width_out, 0u);
    if at != 0xffffffffu {
      numbers[j] = f32(input[params.input_offset + at]);
    }
  }
  output[i] = packed(numbers);
}

fn copy_filter(i: u32) {
  var numbers: array<f32, 8>;
  for (var j = 0u; j < 8u; j++) {
    let at = source_of(i, j, params.filter_height, params.filter_width, params.filter_width_out, params.shift);
    if at != 0xffffffffu {
      numbers[j] = f32(filter_values[params.filter_offset + at]);
    }
  }
  folded_filters[i] = packed(numbers);
}
