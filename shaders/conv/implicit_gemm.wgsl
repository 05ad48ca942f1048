// output[n, k, y, x] = Σ input[n, c, y·stride₀ + r − padding₀, x·stride₁ + s − padding₁] · filter[k, c, r, s]
//
// A matrix product that is never written out: its rows are the filters, its columns the output's pixels of the whole
// batch, and what is summed over is (c, r, s). Elements of the right factor are read from the input as they are needed.
//
// needs: VEC (filters may be read as vectors) and what lib/tile_product needs

const A_ALONG_K: u32 = 1u;
const B_ALONG_K: u32 = 0u;

struct Params {
  filters: u32,
  // Output pixels of the batch, and of one image.
  columns: u32,
  pixels: u32,
  // C · R · S.
  taps: u32,
  tiles_m: u32,
  tiles: u32,
  channels: u32,
  height: u32,
  width: u32,
  out_width: u32,
  filter_height: u32,
  filter_width: u32,
  stride_y: u32,
  stride_x: u32,
  padding_y: u32,
  padding_x: u32,
  input_offset: u32,
  filter_offset: u32,
  output_offset: u32,
}

@group(0) @binding(0) var<storage, read> input: array<f32>;
@group(0) @binding(1) var<storage, read> filter_values: array<f32>;
@group(0) @binding(2) var<storage, read> filter_vectors: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> output: array<f32>;

fn load_filter(row: u32, k: u32, count: u32) -> vec4<f32> {
  var v = vec4<f32>();
  if row >= params.filters {
    return v;
  }
  let i = params.filter_offset + row * params.taps + k;
  if VEC == 1u && count > 3u {
    return filter_vectors[i / 4u];
  }
  if count > 0u { v.x = filter_values[i]; }
  if count > 1u { v.y = filter_values[i + 1u]; }
  if count > 2u { v.z = filter_values[i + 2u]; }
  if count > 3u { v.w = filter_values[i + 3u]; }
  return v;
}

fn block_a(tile: Tile, outer: vec2<u32>, lane: vec2<u32>, count: u32) -> mat4x4<f32> {
  let place = outer + lane;
  return transpose(mat4x4<f32>(
    load_filter(place.x, place.y, count),
    load_filter(place.x + 1u, place.y, count),
    load_filter(place.x + 2u, place.y, count),
    load_filter(place.x + 3u, place.y, count),
  ));
}

// Where the filter lies over the input for one output pixel.
struct Corner {
  // First element of the image, past its end for a column that doesn't exist.
  image: u32,
  // May be negative, as the padding is.
  y: i32,
  x: i32,
  inside: bool,
}

fn corner_of(column: u32) -> Corner {
  let n = column / params.pixels;
  let pixel = column % params.pixels;
  let y = (pixel / params.out_width) * params.stride_y;
  let x = (pixel % params.out_width) * params.stride_x;
  let image = params.input_offset + n * params.channels * params.height * params.width;
  return Corner(image, i32(y) - i32(params.padding_y), i32(x) - i32(params.padding_x), column < params.columns);
}

fn load_input(corner: Corner, c: u32, r: u32, s: u32) -> f32 {
  let y = corner.y + i32(r);
  let x = corner.x + i32(s);
  if !corner.inside || y < 0 || x < 0 || u32(y) >= params.height || u32(x) >= params.width {
    return 0.0;
  }
  return input[corner.image + (c * params.height + u32(y)) * params.width + u32(x)];
}

fn block_b(tile: Tile, outer: vec2<u32>, lane: vec2<u32>, count: u32) -> mat4x4<f32> {
  let place = outer + lane;
  let c0 = corner_of(place.x);
  let c1 = corner_of(place.x + 1u);
  let c2 = corner_of(place.x + 2u);
  let c3 = corner_of(place.x + 3u);
  let window = params.filter_height * params.filter_width;
  var block = mat4x4<f32>();
  for (var i = 0u; i < 4u; i++) {
    let k = place.y + i;
    if i < count && k < params.taps {
      let c = k / window;
      let r = (k % window) / params.filter_width;
      let s = k % params.filter_width;
      block[i] = vec4<f32>(
        load_input(c0, c, r, s),
        load_input(c1, c, r, s),
        load_input(c2, c, r, s),
        load_input(c3, c, r, s),
      );
    }
  }
  return block;
}

fn write_out(tile: Tile, row: u32, column: u32, sums: vec4<f32>) {
  for (var i = 0u; i < 4u; i++) {
    let pixel = column + i;
    if row < params.filters && pixel < params.columns {
      let n = pixel / params.pixels;
      let at = (n * params.filters + row) * params.pixels + pixel % params.pixels;
      output[params.output_offset + at] = sums[i];
    }
  }
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let flat = flat_group(group, groups);
  if flat >= params.tiles {
    return;
  }
  let tile = Tile((flat % params.tiles_m) * TILE_M, (flat / params.tiles_m) * TILE_N, 0u);
  tile_product(tile, index, 0u, params.taps);
}
