// Convolution and its transposition (lib/conv) as a matrix product that is never written out: its rows are
// the result's pixels of the whole batch, its columns the filters of a group, and what is summed over are the
// filter's taps. Elements of the left operand are read from the source as they are needed.
//
// The sums may be made in slices, each of which has tiles and results of its own.
//
// needs: T, TC (of the results), VEC (filters may be read as vectors), ACTIVATION, lib/conv, lib/workgroup_tiles, one
// of lib/source_…, one of lib/results_… and what lib/tile_product needs

const B_ALONG_K: u32 = 1u;
const COLUMN_STEP: u32 = 1u;

// Where the results of the tile's slice begin, after those of the slices before it.
var<private> slice_offset: u32;

// Four taps of a filter, 0 for those from `count` on.
fn load_filter(tile: Tile, f: u32, k: u32, count: u32) -> vec4<f32> {
  var v = vec4<f32>();
  // What lies beyond the last tap is fetched, but not used.
  let last = (params.groups * params.filters) * taps() - 1u;
  let i = min((tile.batch * params.filters + min(f, params.filters - 1u)) * taps() + k, last) + params.filter_offset;
  if VEC == 1u {
    if count > 3u {
      return vec4<f32>(filter_vectors[i / 4u]);
    }
    return v;
  }
  if count > 0u { v.x = f32(filter_values[i]); }
  if count > 1u { v.y = f32(filter_values[min(i + 1u, last + params.filter_offset)]); }
  if count > 2u { v.z = f32(filter_values[min(i + 2u, last + params.filter_offset)]); }
  if count > 3u { v.w = f32(filter_values[min(i + 3u, last + params.filter_offset)]); }
  return v;
}

// Four filters by four taps, of which `count` are to be had. Beyond the last filter, these are those of
// another.
fn block_b(tile: Tile, origin: vec2<u32>, lane: vec2<u32>, count: u32) -> mat4x4<f32> {
  let place = origin + lane;
  return transpose(mat4x4<f32>(
    load_filter(tile, place.x, place.y, count),
    load_filter(tile, place.x + 1u, place.y, count),
    load_filter(tile, place.x + 2u, place.y, count),
    load_filter(tile, place.x + 3u, place.y, count),
  ));
}

// Results of four filters at a pixel, or of one at four pixels: as lib/results_… takes them.
fn write_out(tile: Tile, row: u32, column: u32, sums: vec4<f32>) {
  if row >= params.rows || column >= params.filters {
    return;
  }
  let f = tile.batch * params.filters + column;
  let place = quotient_rest(row, params.pixels, params.per_image);
  write_results(slice_offset + result_at(place.x, place.y, f), f, min(params.filters - column, 4u), sums);
}

fn make_tile(flat: u32, index: u32) {
  // Tiles of the same pixels follow each other, so that what they share is still in the cache.
  let across = flat / params.tiles_n;
  let group_slice = across / params.tiles_m;
  let slice = group_slice / params.groups;
  let origin = vec2<u32>((across % params.tiles_m) * TILE_M, (flat % params.tiles_n) * TILE_N);
  let first = slice * params.slice;
  slice_offset = slice * params.rows * params.groups * params.filters;
  tile_product(Tile(origin.x, origin.y, group_slice % params.groups), index, first, min(taps() - first, params.slice));
}
