// What pooling and its gradient share: their parameters and windows.
//
// needs: OP (0: the maximum, 1: the average, 2: the average with padding), lib/quotient

// An element of an image with `inner` adjacent channels.
struct Place {
  image: u32,
  y: u32,
  x: u32,
  channel: u32,
}

fn place_of(i: u32, height: u32, width: u32) -> Place {
  let pixel = quotient_rest(i, params.inner, params.per_pixel);
  let row = quotient_rest(pixel.x, width, params.per_row);
  let image = quotient_rest(row.x, height, params.per_image);
  return Place(image.x, image.y, row.y, pixel.y);
}

// How many positions of a window that starts at `start` of the padded image lie before `end`.
fn up_to(start: u32, end: u32, dilation: u32, size: u32) -> u32 {
  let distance = max(end, start) - start;
  // The branch is taken by all invocations or by none.
  if dilation == 1u {
    return min(distance, size);
  }
  return min((distance + dilation - 1u) / dilation, size);
}

// What a window has in the image: the first and the last but one of its rows and columns, and by how much an
// average divides.
struct Covered {
  rows: vec2<u32>,
  columns: vec2<u32>,
  count: f32,
}

fn covered(y: u32, x: u32) -> Covered {
  let top = y * params.step_y;
  let left = x * params.step_x;
  let rows = vec2<u32>(
    up_to(top, params.before_y, params.dilation_y, params.size_y),
    up_to(top, params.before_y + params.height, params.dilation_y, params.size_y),
  );
  let columns = vec2<u32>(
    up_to(left, params.before_x, params.dilation_x, params.size_x),
    up_to(left, params.before_x + params.width, params.dilation_x, params.size_x),
  );
  var count = f32(rows.y - rows.x) * f32(columns.y - columns.x);
  if OP == 2u {
    count = f32(up_to(top, params.padded_y, params.dilation_y, params.size_y))
      * f32(up_to(left, params.padded_x, params.dilation_x, params.size_x));
  }
  return Covered(rows, columns, count);
}

// The first and the last but one of the windows between whose ends a position of the padded image lies.
fn windows_at(position: u32, step: u32, per_step: f32, span: u32, count: u32) -> vec2<u32> {
  let first = quotient_rest(max(position, span) - span + step - 1u, step, per_step);
  return vec2<u32>(first.x, min(quotient_rest(position, step, per_step).x + 1u, count));
}
