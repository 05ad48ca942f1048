// Depthwise convolution of adjacent channels: each invocation makes ROWS × COLUMNS neighbouring results of
// four channels, so that the source under them is read once and all accesses are vectors. Neighbours have
// neighbouring channels.
//
// Filters are SIDE × SIDE and move by STEP along both axes. What makes the results, `make`, is written by
// src/ops/conv/depthwise.rs, and calls the functions of this file: sums have to be in registers.
//
// needs: T, ROWS, COLUMNS, SIDE, STEP, ACTIVATION, lib/activate

const THREADS: u32 = 128u;

// The first result of an invocation, and its channels in vec4s.
struct Place {
  image: u32,
  y: u32,
  x: u32,
  four: u32,
}

fn vec4s() -> u32 {
  return params.groups / 4u;
}

fn place_of(i: u32) -> Place {
  let height = params.pixels / params.out_width;
  let bands = (height + ROWS - 1u) / ROWS;
  let blocks = (params.out_width + COLUMNS - 1u) / COLUMNS;
  let block = i / vec4s();
  let band = block / blocks;
  return Place(band / bands, band % bands * ROWS, block % blocks * COLUMNS, i % vec4s());
}

// Four weights of a filter's channels, of which the weights of each lie together.
fn weights(place: Place, i: u32) -> vec4<f32> {
  return vec4<f32>(filter4[params.filter_offset / 4u + place.four * (SIDE * SIDE) + i]);
}

// The source's row and column under the first tap of the first result.
fn first_row(place: Place) -> i32 {
  return i32(place.y * STEP) + params.offset_y;
}

fn first_column(place: Place) -> i32 {
  return i32(place.x * STEP) + params.offset_x;
}

// The vector at the beginning of row y of the source.
fn row_start(place: Place, y: i32) -> u32 {
  let row = place.image * params.height + min(u32(y), params.height - 1u);
  return params.input_offset / 4u + row * params.width * vec4s() + place.four;
}

// What the source has there, or 0. It is read whether it exists or not, because branches would be waited for.
fn at_column(row: u32, y: i32, x: i32) -> vec4<f32> {
  let inside = u32(y) < params.height && u32(x) < params.width;
  let v = vec4<f32>(input4[row + min(u32(x), params.width - 1u) * vec4s()]);
  return select(vec4<f32>(), v, inside);
}

fn bias_of(place: Place) -> vec4<f32> {
  if params.biased == 0u {
    return vec4<f32>();
  }
  let at = params.bias_offset + place.four * 4u;
  return vec4<f32>(f32(bias[at]), f32(bias[at + 1u]), f32(bias[at + 2u]), f32(bias[at + 3u]));
}

fn write_out(place: Place, row: u32, column: u32, sums: vec4<f32>) {
  let y = place.y + row;
  let x = place.x + column;
  if y * params.out_width < params.pixels && x < params.out_width {
    let v = vec4<f32>(
      activate(ACTIVATION, sums.x),
      activate(ACTIVATION, sums.y),
      activate(ACTIVATION, sums.z),
      activate(ACTIVATION, sums.w),
    );
    let pixel = place.image * params.pixels + y * params.out_width + x;
    output4[params.output_offset / 4u + pixel * vec4s() + place.four] = vec4<T>(v);
  }
}

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let i = flat_group(workgroup.id, workgroup.count) * THREADS + lane;
  if i < params.tiles {
    make(place_of(i));
  }
}
