// Blocks of 4 × 4 of the factors of a matrix product, with 0 where a matrix has ended.
//
// needs: a, a4, b, b4, VEC, TRANS_A, TRANS_B, Tile, lib/matmul

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
