// Convolution and its transposition (lib/conv) as a matrix product that is never written out: its rows are the result's
// pixels of the whole batch, its columns the filters of a group, and what is summed over are the filter's taps. Elements
// of the left factor are read from the source as they are needed.
//
// needs: T, VEC (filters may be read as vectors), ACTIVATION, lib/conv, one of lib/source_… and what lib/tile_product
// needs

const B_ALONG_K: u32 = 1u;

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read> input4: array<vec4<T>>;
@group(0) @binding(2) var<storage, read> filter_values: array<T>;
@group(0) @binding(3) var<storage, read> filter_vectors: array<vec4<T>>;
@group(0) @binding(4) var<storage, read> bias: array<T>;
@group(0) @binding(5) var<storage, read_write> output: array<T>;
// The output once more, for writing vectors.
@group(0) @binding(6) var<storage, read_write> output4: array<vec4<T>>;

fn load_filter(tile: Tile, f: u32, k: u32) -> vec4<f32> {
  var v = vec4<f32>();
  if f >= params.filters || k >= taps() {
    return v;
  }
  let i = params.filter_offset + (tile.batch * params.filters + f) * taps() + k;
  if VEC == 1u {
    return vec4<f32>(filter_vectors[i / 4u]);
  }
  let count = taps() - k;
  v.x = f32(filter_values[i]);
  if count > 1u { v.y = f32(filter_values[i + 1u]); }
  if count > 2u { v.z = f32(filter_values[i + 2u]); }
  if count > 3u { v.w = f32(filter_values[i + 3u]); }
  return v;
}

fn block_b(tile: Tile, place: vec2<u32>) -> mat4x4<f32> {
  return transpose(mat4x4<f32>(
    load_filter(tile, place.x, place.y),
    load_filter(tile, place.x + 1u, place.y),
    load_filter(tile, place.x + 2u, place.y),
    load_filter(tile, place.x + 3u, place.y),
  ));
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
  // Tiles of the same pixels follow each other, so that what they share is still in the cache.
  let across = flat / params.tiles_n;
  let tile = Tile((across % params.tiles_m) * TILE_M, (flat % params.tiles_n) * TILE_N, across / params.tiles_m);
  let lane = lane_of(index);
  var sums = tile_product(tile, lane, index, 0u, taps());
  let first_filter = tile.batch * params.filters;
  let aligned = params.output_offset % 4u == 0u;
  if params.interleaved_out == 1u {
    let vectors = aligned && params.filters % 4u == 0u;
    for (var i = 0u; i < THREAD_M; i++) {
      let row = tile.row + result_row(lane, i);
      for (var j = 0u; j < THREAD_N4; j++) {
        let column = tile.column + result_column(lane, j);
        let f = first_filter + column;
        let v = sums[i * THREAD_N4 + j];
        let count = select(0u, min(max(params.filters, column) - column, 4u), row < params.rows);
        let at = params.output_offset + row * params.groups * params.filters + f;
        if vectors {
          if count > 0u {
            output4[at / 4u] = vec4<T>(finish(v.x, f), finish(v.y, f + 1u), finish(v.z, f + 2u), finish(v.w, f + 3u));
          }
        } else {
          if count > 0u { output[at] = finish(v.x, f); }
          if count > 1u { output[at + 1u] = finish(v.y, f + 1u); }
          if count > 2u { output[at + 2u] = finish(v.z, f + 2u); }
          if count > 3u { output[at + 3u] = finish(v.w, f + 3u); }
        }
      }
    }
  } else if aligned && params.pixels % 4u == 0u {
    for (var i = 0u; i < THREAD_M; i += 4u) {
      let row = tile.row + result_row(lane, i);
      let place = quotient_rest(row, params.pixels, params.per_image);
      for (var j = 0u; j < THREAD_N; j++) {
        let column = tile.column + result_column(lane, j / 4u) + j % 4u;
        let f = first_filter + column;
        if row < params.rows && column < params.filters {
          let at = (i * THREAD_N4) + j / 4u;
          output4[result_at(place.x, place.y, f) / 4u] = vec4<T>(
            finish(sums[at][j % 4u], f),
            finish(sums[at + THREAD_N4][j % 4u], f),
            finish(sums[at + 2u * THREAD_N4][j % 4u], f),
            finish(sums[at + 3u * THREAD_N4][j % 4u], f),
          );
        }
      }
    }
  } else {
    for (var i = 0u; i < THREAD_M; i++) {
      let row = tile.row + result_row(lane, i);
      let place = quotient_rest(row, params.pixels, params.per_image);
      for (var j = 0u; j < THREAD_N; j++) {
        let column = tile.column + result_column(lane, j / 4u) + j % 4u;
        let f = first_filter + column;
        if row < params.rows && column < params.filters {
          output[result_at(place.x, place.y, f)] = finish(sums[i * THREAD_N4 + j / 4u][j % 4u], f);
        }
      }
    }
  }
}
