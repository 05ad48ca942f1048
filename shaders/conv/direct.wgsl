// Convolution and its transposition (lib/conv) with few channels or filters in a group, such as depthwise
// ones: each invocation makes the results of ROWS rows below each other, so that neighbours read and write
// neighbouring elements.
//
// With SIDE, filters are SIDE × SIDE, of one channel, and move by STEP rows down, or by one up: each element of
// the source is read once for all the rows that need it. With 0, filters may be any. What makes the results,
// `make`, is written by src/ops/conv/direct.rs, and calls the functions of this file: sums have to be in
// registers.
//
// Weights of a filter with SIDE are `tiles_m` from one filter to the next and `tiles_n` from tap to tap.
//
// needs: T, ROWS, SIDE, STEP, ACTIVATION, lib/conv

const THREADS: u32 = 128u;

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

// Whether filters are iterated over from below.
fn is_reversed() -> bool {
  return params.tap_y < 0;
}

// The weight of a square filter at row `r` counted from above, also where it is iterated over from below.
fn weight(place: Place, r: u32, s: u32) -> f32 {
  let line = select(r, max(SIDE, 1u) - 1u - r, is_reversed());
  let tap = line * SIDE + s;
  return f32(filter_values[params.filter_offset + place.filter_index * params.tiles_m + tap * params.tiles_n]);
}

// The source's row that a square filter meets first, and the first column.
fn first_row(place: Place) -> i32 {
  return i32(place.y * STEP) + params.offset_y - select(0, i32(SIDE) - 1, is_reversed());
}

fn first_column(place: Place) -> i32 {
  return i32(place.x * params.step_x) + params.offset_x;
}

// What column `s` of a square filter meets in a row of the source.
fn at_column(start: u32, y: i32, x: i32, s: u32) -> f32 {
  let column = x + i32(s) * params.tap_x;
  var v = 0.0;
  if u32(y) < params.height && u32(column) < params.width {
    v = f32(input[start + (u32(y) * params.width + u32(column)) * column_step()]);
  }
  return v;
}

// What a filter's taps in column x of the source, and in row `y` of it, add to a result.
fn along_channels(place: Place, start: u32, y: u32, x: u32, tap: u32) -> f32 {
  var sum = 0.0;
  if y < params.height {
    let interleaved = params.interleaved == 1u;
    var at = start + y * row_step() + x * column_step();
    var weight_at = params.filter_offset + place.filter_index * taps() + tap * select(1u, params.channels, interleaved);
    let weight_step = select(params.filter_height * params.filter_width, 1u, interleaved);
    for (var channel = 0u; channel < params.channels; channel++) {
      sum += f32(input[at]) * f32(filter_values[weight_at]);
      at += channel_step();
      weight_at += weight_step;
    }
  }
  return sum;
}

fn write_out(place: Place, row: u32, sum: f32) {
  let y = place.y + row;
  if y * params.out_width < params.pixels {
    let pixel = y * params.out_width + place.x;
    output[result_at(place.image, pixel, place.filter_index)] = T(finish(sum, place.filter_index));
  }
}

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let i = flat_group(workgroup.id, workgroup.count) * THREADS + lane;
  if i >= params.tiles {
    return;
  }
  let place = place_of(i);
  make(place, source_start(place));
}
