// C = activation(alpha · op(A) · op(B) + beta · C + bias) for each matrix of a batch, tile by tile.
//
// With VEC, the starts, leading dimensions, batch strides and extents along memory of A and B are multiples of 4, and
// both are read as vectors; without, element by element.
//
// needs: TA, TB, TC, VEC, TRANS_A, TRANS_B, ACTIVATION and what lib/tile_product needs

const A_ALONG_K: u32 = 1u - TRANS_A;
const B_ALONG_K: u32 = TRANS_B;

// Tiles of a column that are worked on together, so that what they share of B is still in the cache.
const RASTER: u32 = 8u;

struct Params {
  m: u32,
  n: u32,
  k: u32,
  tiles_m: u32,
  tiles_n: u32,
  tiles: u32,
  a_offset: u32,
  a_ld: u32,
  a_batch: u32,
  b_offset: u32,
  b_ld: u32,
  b_batch: u32,
  c_offset: u32,
  c_ld: u32,
  c_batch: u32,
  bias_offset: u32,
  // 0: none, 1: one for each column, 2: one for each row.
  bias: u32,
  // Whether C is read at all.
  accumulate: u32,
  alpha: f32,
  beta: f32,
}

@group(0) @binding(0) var<storage, read> a: array<TA>;
@group(0) @binding(1) var<storage, read> a4: array<vec4<TA>>;
@group(0) @binding(2) var<storage, read> b: array<TB>;
@group(0) @binding(3) var<storage, read> b4: array<vec4<TB>>;
@group(0) @binding(4) var<storage, read> bias: array<TC>;
@group(0) @binding(5) var<storage, read_write> c: array<TC>;

// How many of four positions from `i` on lie before `end`.
fn room(i: u32, end: u32) -> u32 {
  return min(max(end, i) - i, 4u);
}

// Four adjacent elements, 0 where there are fewer.
fn load_a(i: u32, count: u32) -> vec4<f32> {
  var v = vec4<f32>();
  if VEC == 1u {
    if count > 0u {
      v = vec4<f32>(a4[i / 4u]);
    }
    return v;
  }
  if count > 0u { v.x = f32(a[i]); }
  if count > 1u { v.y = f32(a[i + 1u]); }
  if count > 2u { v.z = f32(a[i + 2u]); }
  if count > 3u { v.w = f32(a[i + 3u]); }
  return v;
}

fn load_b(i: u32, count: u32) -> vec4<f32> {
  var v = vec4<f32>();
  if VEC == 1u {
    if count > 0u {
      v = vec4<f32>(b4[i / 4u]);
    }
    return v;
  }
  if count > 0u { v.x = f32(b[i]); }
  if count > 1u { v.y = f32(b[i + 1u]); }
  if count > 2u { v.z = f32(b[i + 2u]); }
  if count > 3u { v.w = f32(b[i + 3u]); }
  return v;
}

// The block of op(A) at (row, k), one column of the matrix for each k.
fn block_a(tile: Tile, place: vec2<u32>) -> mat4x4<f32> {
  let base = params.a_offset + tile.batch * params.a_batch;
  if TRANS_A == 1u {
    let i = base + place.y * params.a_ld + place.x;
    let width = room(place.x, params.m);
    let height = room(place.y, params.k);
    return mat4x4<f32>(
      load_a(i, select(0u, width, height > 0u)),
      load_a(i + params.a_ld, select(0u, width, height > 1u)),
      load_a(i + 2u * params.a_ld, select(0u, width, height > 2u)),
      load_a(i + 3u * params.a_ld, select(0u, width, height > 3u)),
    );
  }
  let i = base + place.x * params.a_ld + place.y;
  let width = room(place.y, params.k);
  let height = room(place.x, params.m);
  return transpose(mat4x4<f32>(
    load_a(i, select(0u, width, height > 0u)),
    load_a(i + params.a_ld, select(0u, width, height > 1u)),
    load_a(i + 2u * params.a_ld, select(0u, width, height > 2u)),
    load_a(i + 3u * params.a_ld, select(0u, width, height > 3u)),
  ));
}

// The block of op(B) at (column, k), one column of the matrix for each k.
fn block_b(tile: Tile, place: vec2<u32>) -> mat4x4<f32> {
  let base = params.b_offset + tile.batch * params.b_batch;
  if TRANS_B == 0u {
    let i = base + place.y * params.b_ld + place.x;
    let width = room(place.x, params.n);
    let height = room(place.y, params.k);
    return mat4x4<f32>(
      load_b(i, select(0u, width, height > 0u)),
      load_b(i + params.b_ld, select(0u, width, height > 1u)),
      load_b(i + 2u * params.b_ld, select(0u, width, height > 2u)),
      load_b(i + 3u * params.b_ld, select(0u, width, height > 3u)),
    );
  }
  let i = base + place.x * params.b_ld + place.y;
  let width = room(place.y, params.k);
  let height = room(place.x, params.n);
  return transpose(mat4x4<f32>(
    load_b(i, select(0u, width, height > 0u)),
    load_b(i + params.b_ld, select(0u, width, height > 1u)),
    load_b(i + 2u * params.b_ld, select(0u, width, height > 2u)),
    load_b(i + 3u * params.b_ld, select(0u, width, height > 3u)),
  ));
}

// The tile of a workgroup: RASTER rows of tiles are walked column by column.
fn tile_of(flat: u32) -> Tile {
  let per_batch = params.tiles_m * params.tiles_n;
  let batch = flat / per_batch;
  let t = flat % per_batch;
  let band = t / (RASTER * params.tiles_n);
  let rows = min(RASTER, params.tiles_m - band * RASTER);
  let inner = t % (RASTER * params.tiles_n);
  return Tile((band * RASTER + inner % rows) * TILE_M, (inner / rows) * TILE_N, batch);
}

fn finish(value: f32, row: u32, column: u32, i: u32) -> TC {
  var v = params.alpha * value;
  if params.accumulate == 1u {
    v += params.beta * f32(c[i]);
  }
  if params.bias == 1u {
    v += f32(bias[params.bias_offset + column]);
  } else if params.bias == 2u {
    v += f32(bias[params.bias_offset + row]);
  }
  return TC(activate(ACTIVATION, v));
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
  let tile = tile_of(flat);
  let lane = lane_of(index);
  var sums = tile_product(tile, lane, index, 0u, params.k);
  for (var i = 0u; i < THREAD_M; i++) {
    let row = tile.row + result_row(lane, i);
    for (var j = 0u; j < THREAD_N4; j++) {
      let column = tile.column + result_column(lane, j);
      let at = params.c_offset + tile.batch * params.c_batch + row * params.c_ld + column;
      let count = select(0u, room(column, params.n), row < params.m);
      let v = sums[i * THREAD_N4 + j];
      if count > 0u { c[at] = finish(v.x, row, column, at); }
      if count > 1u { c[at + 1u] = finish(v.y, row, column + 1u, at + 1u); }
      if count > 2u { c[at + 2u] = finish(v.z, row, column + 2u, at + 2u); }
      if count > 3u { c[at + 3u] = finish(v.w, row, column + 3u, at + 3u); }
    }
  }
}
