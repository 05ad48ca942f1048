// The elements that a pooling window covers, and the largest of them.
//
// needs: lib/pool, lib/special, input

fn element(place: Place, y: u32, x: u32) -> f32 {
  let pixel = (place.image * params.height + y) * params.width + x;
  return f32(input[params.input_offset + pixel * params.inner + place.channel]);
}

// The largest number of a window, and where the first of them is; the first NaN if there is one.
struct Largest {
  value: f32,
  y: u32,
  x: u32,
}

fn largest(place: Place) -> Largest {
  let window = covered(place.y, place.x);
  var best = Largest(-inf(), 0xffffffffu, 0xffffffffu);
  for (var r = window.rows.x; r < window.rows.y; r++) {
    let y = place.y * params.step_y + r * params.dilation_y - params.before_y;
    for (var s = window.columns.x; s < window.columns.y; s++) {
      let x = place.x * params.step_x + s * params.dilation_x - params.before_x;
      let value = element(place, y, x);
      let first = best.y == 0xffffffffu;
      if first || (!is_nan(best.value) && (is_nan(value) || value > best.value)) {
        best = Largest(value, y, x);
      }
    }
  }
  return best;
}
