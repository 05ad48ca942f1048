// The gradient of a pooling: each invocation makes that of one element of the input, from the windows that
// cover it. Of maxima it goes to the element at the window's position from conv/pool_argmax.
//
// needs: T, OP, lib/invocation_range, lib/pool

// The part of the gradient of the window at (y, x) that belongs to the element at `place`.
fn share(place: Place, y: u32, x: u32) -> f32 {
  let pixel = (place.image * params.out_height + y) * params.out_width + x;
  let window = pixel * params.inner + place.channel;
  let given = f32(gradient[params.gradient_offset + window]);
  if OP == 0u {
    let position = positions[params.input_offset + window];
    return select(0.0, given, position == place.y * params.width + place.x);
  }
  return given / covered(y, x).count;
}

fn make_output(i: u32) {
  let place = place_of(i, params.height, params.width);
  let bottom = place.y + params.before_y;
  let right = place.x + params.before_x;
  let height = (params.size_y - 1u) * params.dilation_y;
  let width = (params.size_x - 1u) * params.dilation_x;
  let rows = windows_at(bottom, params.step_y, params.per_step_y, height, params.out_height);
  let columns = windows_at(right, params.step_x, params.per_step_x, width, params.out_width);
  var sum = 0.0;
  for (var y = rows.x; y < rows.y; y++) {
    if params.dilation_y > 1u && (bottom - y * params.step_y) % params.dilation_y != 0u {
      continue;
    }
    for (var x = columns.x; x < columns.y; x++) {
      if params.dilation_x == 1u || (right - x * params.step_x) % params.dilation_x == 0u {
        sum += share(place, y, x);
      }
    }
  }
  output[params.output_offset + i] = T(sum);
}
