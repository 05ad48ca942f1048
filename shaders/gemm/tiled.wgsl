// C = activation(alpha · op(A) · op(B) + beta · C + bias) for each matrix of a batch, tile by tile.
//
// With VEC, the starts, leading dimensions, batch strides and extents along memory of A and B are multiples of 4, and
// both are read as vectors; without, element by element.
//
// needs: TA, TB, TC, VEC, TRANS_A, TRANS_B, ACTIVATION, lib/matmul and what lib/tile_product needs

const A_ALONG_K: u32 = 1u - TRANS_A;
const B_ALONG_K: u32 = TRANS_B;

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
    let height = room(place.y, depth(tile.batch));
    return mat4x4<f32>(
      load_a(i, select(0u, width, height > 0u)),
      load_a(i + params.a_ld, select(0u, width, height > 1u)),
      load_a(i + 2u * params.a_ld, select(0u, width, height > 2u)),
      load_a(i + 3u * params.a_ld, select(0u, width, height > 3u)),
    );
  }
  let i = base + place.x * params.a_ld + place.y;
  let width = room(place.y, depth(tile.batch));
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
    let height = room(place.y, depth(tile.batch));
    return mat4x4<f32>(
      load_b(i, select(0u, width, height > 0u)),
      load_b(i + params.b_ld, select(0u, width, height > 1u)),
      load_b(i + 2u * params.b_ld, select(0u, width, height > 2u)),
      load_b(i + 3u * params.b_ld, select(0u, width, height > 3u)),
    );
  }
  let i = base + place.x * params.b_ld + place.y;
  let width = room(place.y, depth(tile.batch));
  let height = room(place.x, params.n);
  return transpose(mat4x4<f32>(
    load_b(i, select(0u, width, height > 0u)),
    load_b(i + params.b_ld, select(0u, width, height > 1u)),
    load_b(i + 2u * params.b_ld, select(0u, width, height > 2u)),
    load_b(i + 3u * params.b_ld, select(0u, width, height > 3u)),
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
  let place = tile_place(flat);
  let tile = Tile(place.x * TILE_M, place.y * TILE_N, place.z);
  let lane = lane_of(index);
  var sums = tile_product(tile, lane, index, 0u, depth(tile.batch));
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
