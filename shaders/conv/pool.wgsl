// Pooling: each invocation makes one result of the elements in its window.
//
// needs: T, OP, lib/invocation_range, lib/pool_input

fn make_output(i: u32) {
  let place = place_of(i, params.out_height, params.out_width);
  var v = 0.0;
  if OP == 0u {
    v = largest(place).value;
  } else {
    let window = covered(place.y, place.x);
    for (var r = window.rows.x; r < window.rows.y; r++) {
      let y = place.y * params.step_y + r * params.dilation_y - params.before_y;
      for (var s = window.columns.x; s < window.columns.y; s++) {
        let x = place.x * params.step_x + s * params.dilation_x - params.before_x;
        v += element(place, y, x);
      }
    }
    if window.count == 0.0 {
      v = nan();
    } else {
      v /= window.count;
    }
  }
  output[params.output_offset + i] = T(v);
}
