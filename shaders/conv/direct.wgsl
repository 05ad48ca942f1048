// Convolution and its transposition (lib/conv) with few channels or filters in a group, such as depthwise ones: each
// invocation makes the results of ROWS rows below each other, so that neighbours read and write neighbouring elements.
//
// With SIDE, filters are SIDE × SIDE, of one channel, and move by single steps up or down: each element of the source is read
// once for all the rows that need it. With 0, filters may be any.
//
// needs: T, ROWS, SIDE, ACTIVATION, lib/conv

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read> filter_values: array<T>;
@group(0) @binding(2) var<storage, read> bias: array<T>;
@group(0) @binding(3) var<storage, read_write> output: array<T>;

const THREADS: u32 = 128u;

// One at least, as there are no arrays of nothing.
const SQUARE: u32 = max(SIDE * SIDE, 1u);

struct Place {
  image: u32,
  // Over all groups.
  filter_index: u32,
  y: u32,
  x: u32,
}

fn place_of(i: u32) -> Place {
  let height = params.pixels / params.out_width;
  let bands = (height + ROWS - 1u) / ROWS;
  let all = params.groups * params.filters;
  if params.interleaved == 1u {
    let column = i / all;
    let row = column / params.out_width;
    return Place(row / bands, i % all, row % bands * ROWS, column % params.out_width);
  }
  let row = i / params.out_width;
  let plane = row / bands;
  return Place(plane / all, plane % all, row % bands * ROWS, i % params.out_width);
}

// The first element of the source's channels that a filter reads.
fn source_start(place: Place) -> u32 {
  let group = place.filter_index / params.filters;
  return params.input_offset + place.image * image_step() + group * params.channels * channel_step();
}

fn square(place: Place) -> array<f32, ROWS> {
  var sums: array<f32, ROWS>;
  var weights: array<f32, SQUARE>;
  // From above, also where the filter is walked from below.
  let reversed = params.tap_y < 0;
  let factors = params.filter_offset + place.filter_index * SQUARE;
  for (var r = 0u; r < SIDE; r++) {
    let line = select(r, SIDE - 1u - r, reversed);
    for (var s = 0u; s < SIDE; s++) {
      weights[r * SIDE + s] = f32(filter_values[factors + line * SIDE + s]);
    }
  }
  let start = source_start(place);
  let first_y = i32(place.y) + params.offset_y - select(0, i32(SIDE) - 1, reversed);
  let first_x = i32(place.x * params.step_x) + params.offset_x;
  for (var line = 0u; line < ROWS + SIDE - 1u; line++) {
    let y = first_y + i32(line);
    let line_start = start + u32(y * i32(params.width) + first_x) * column_step();
    for (var s = 0u; s < SIDE; s++) {
      let right = i32(s) * params.tap_x;
      var v = 0.0;
      if u32(y) < params.height && u32(first_x + right) < params.width {
        v = f32(input[line_start + u32(right) * column_step()]);
      }
      for (var row = 0u; row < ROWS; row++) {
        if line >= row && line < row + SIDE {
          sums[row] += v * weights[(line - row) * SIDE + s];
        }
      }
    }
  }
  return sums;
}

fn any_filter(place: Place) -> array<f32, ROWS> {
  var sums: array<f32, ROWS>;
  let start = source_start(place);
  let factors = params.filter_offset + place.filter_index * taps();
  let window = params.filter_height * params.filter_width;
  let factor_channel = select(window, 1u, params.interleaved == 1u);
  let factor_place = select(1u, params.channels, params.interleaved == 1u);
  // Without channels, filters have any extents.
  for (var s = 0u; s < params.filter_width && params.channels > 0u; s++) {
    let x = source_column(place.x, s);
    if x >= params.width {
      continue;
    }
    for (var r = 0u; r < params.filter_height; r++) {
      for (var row = 0u; row < ROWS; row++) {
        let y = source_row(place.y + row, r);
        if y >= params.height {
          continue;
        }
        var at = start + y * row_step() + x * column_step();
        var factor = factors + (r * params.filter_width + s) * factor_place;
        for (var channel = 0u; channel < params.channels; channel++) {
          sums[row] += f32(input[at]) * f32(filter_values[factor]);
          at += channel_step();
          factor += factor_channel;
        }
      }
    }
  }
  return sums;
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let i = flat_group(group, groups) * THREADS + lane;
  if i >= params.tiles {
    return;
  }
  let place = place_of(i);
  var sums: array<f32, ROWS>;
  if SIDE == 0u {
    sums = any_filter(place);
  } else {
    sums = square(place);
  }
  let height = params.pixels / params.out_width;
  for (var row = 0u; row < ROWS; row++) {
    if place.y + row < height {
      let pixel = (place.y + row) * params.out_width + place.x;
      output[result_at(place.image, pixel, place.filter_index)] = finish(sums[row], place.filter_index);
    }
  }
}
