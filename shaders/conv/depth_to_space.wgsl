// Puts the phases of images, which are channels of smaller images, to where they belong (Shi et al.,
// "Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel Convolutional Neural
// Network", 2016).
//
// needs: T, lib/invocation_outputs

fn make_output(i: u32) {
  // An image of planes is one of a plane for each channel.
  let inner = select(1u, params.channels, params.interleaved == 1u);
  let pixel = i / inner;
  let y = pixel / params.width % params.height + params.before_y;
  let x = pixel % params.width + params.before_x;
  let plane = pixel / params.width / params.height;
  let phases = params.phases_y * params.phases_x;
  let phase = y % params.phases_y * params.phases_x + x % params.phases_x;
  let row = y / params.phases_y;
  let column = x / params.phases_x;
  var at = ((plane * phases + phase) * params.height_in + row) * params.width_in + column;
  if params.interleaved == 1u {
    at = (((plane * params.height_in + row) * params.width_in + column) * inner + i % inner) * phases + phase;
  }
  output[params.output_offset + i] = input[at];
}
