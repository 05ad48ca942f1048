// Copies f16 images, and filters after them, to where the channels of a pixel are adjacent, filled up with 0
// to a multiple of eight in each group. An invocation copies eight channels of a pixel. To this kernel, a filter
// is an image of its places with one group.
//
// Neighbouring invocations copy a block: 8 pixels, and of each 4 groups of eight channels, are 16 adjacent bytes of each
// plane to read, and 64 of each pixel to write. Of one group of eight, each would write 16 bytes of another cache line.
//
// needs: T, lib/eight_copies, lib/packed_eight

// Where eight channels are: the first number, from one to the next, how many there are, and where their copy
// goes.
struct Eight {
  at: u32,
  step: u32,
  count: u32,
  to: u32,
}

fn eight_of(i: u32, pixels: u32, groups: u32, block: vec2<u32>) -> Eight {
  let vec8s = params.channels_out / 8u;
  // The block, how many have all pixels, and the place within it, whose groups of eight channels are adjacent.
  let nth = i / (block.x * block.y);
  let across = pixels / block.x;
  let place = i % (block.x * block.y);
  let pixel = nth % across * block.x + place / block.y;
  let plane = nth / across * block.y + place % block.y;
  let eight = plane % (vec8s * groups);
  let image = plane / (vec8s * groups);
  let first = eight % vec8s * 8u;
  let channel = eight / vec8s * params.channels + first;
  let all = groups * params.channels;
  let planes = (image * all + channel) * pixels + pixel;
  let adjacent = (image * pixels + pixel) * all + channel;
  let interleaved = params.interleaved == 1u;
  return Eight(
    select(planes, adjacent, interleaved),
    select(pixels, 1u, interleaved),
    min(max(params.channels, first) - first, 8u),
    (image * pixels + pixel) * vec8s * groups + eight,
  );
}

fn copy_image(i: u32) {
  let eight = eight_of(i, params.pixels, params.groups, vec2(params.block_pixels, params.block_vec8s));
  var numbers: array<f32, 8>;
  for (var j = 0u; j < 8u; j++) {
    if j < eight.count {
      numbers[j] = f32(input[params.input_offset + eight.at + j * eight.step]);
    }
  }
  output[eight.to] = packed(numbers);
}

fn copy_filter(i: u32) {
  let eight = eight_of(i, params.places, 1u, vec2(params.places, 1u));
  var numbers: array<f32, 8>;
  for (var j = 0u; j < 8u; j++) {
    if j < eight.count {
      numbers[j] = f32(filter_values[params.filter_offset + eight.at + j * eight.step]);
    }
  }
  repacked[eight.to] = packed(numbers);
}
