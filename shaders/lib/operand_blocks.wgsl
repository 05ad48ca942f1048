// Blocks of 4 × 4 of the operands of a matrix product. Beyond a matrix's last row or column across k, a block
// has other elements of the matrix, so that there is nothing to be checked: their products aren't written.
//
// needs: a, a4, b, b4, VEC, TRANS_A, TRANS_B, COLUMN_STEP, Tile, lib/matmul

// The last element of a matrix of at least one element that begins at `base`.
fn last_of(base: u32, ld: u32, across: u32, k: u32, mn_major: bool) -> u32 {
  return base + select(across - 1u, k - 1u, mn_major) * ld + select(k, across, mn_major) - 1u;
}

// Four adjacent elements, none beyond the last.
fn four_a(i: u32, last: u32) -> vec4<f32> {
  if VEC == 1u {
    return vec4<f32>(a4[min(i, last) / 4u]);
  }
  return vec4<f32>(
    f32(a[min(i, last)]),
    f32(a[min(i + 1u, last)]),
    f32(a[min(i + 2u, last)]),
    f32(a[min(i + 3u, last)]),
  );
}

// Four elements of B that are `step` apart, which vectors are for 1.
fn four_b(i: u32, step: u32, last: u32) -> vec4<f32> {
  if VEC == 1u {
    return vec4<f32>(b4[min(i, last) / 4u]);
  }
  return vec4<f32>(
    f32(b[min(i, last)]),
    f32(b[min(i + step, last)]),
    f32(b[min(i + 2u * step, last)]),
    f32(b[min(i + 3u * step, last)]),
  );
}

// The first `count` columns of a block, and 0 for the others.
fn keep(block: mat4x4<f32>, count: u32) -> mat4x4<f32> {
  if count >= 4u {
    return block;
  }
  return mat4x4<f32>(
    select(vec4<f32>(), block[0], count > 0u),
    select(vec4<f32>(), block[1], count > 1u),
    select(vec4<f32>(), block[2], count > 2u),
    vec4<f32>(),
  );
}

// How far an element is from a matrix's first.
fn along(place: vec2<u32>, ld: u32, mn_major: bool) -> u32 {
  return select(place.x * ld + place.y, place.y * ld + place.x, mn_major);
}

// The block of op(A) at (row, k), one column of the matrix for each k, of which `count` are to be had. The
// place is the sum of what is the same for a workgroup's invocations and what is the same in all steps, so
// that neither is computed again and again.
fn block_a(tile: Tile, outer: vec2<u32>, lane: vec2<u32>, count: u32) -> mat4x4<f32> {
  const K_DOWN = TRANS_A == 1u;
  let base = params.a_offset + tile.batch * params.a_batch;
  let last = last_of(base, params.a_ld, params.m, depth(tile.batch), K_DOWN);
  let origin = base + along(outer, params.a_ld, K_DOWN);
  let i = origin + along(lane, params.a_ld, K_DOWN);
  let stored = mat4x4<f32>(
    four_a(i, last),
    four_a(i + params.a_ld, last),
    four_a(i + 2u * params.a_ld, last),
    four_a(i + 3u * params.a_ld, last),
  );
  if K_DOWN {
    return keep(stored, count);
  }
  return keep(transpose(stored), count);
}

// The block of op(B) at (column, k), one column of the matrix for each k, of which `count` are to be had.
fn block_b(tile: Tile, outer: vec2<u32>, lane: vec2<u32>, count: u32) -> mat4x4<f32> {
  const K_DOWN = TRANS_B == 0u;
  let base = params.b_offset + tile.batch * params.b_batch;
  let last = last_of(base, params.b_ld, params.n, depth(tile.batch), K_DOWN);
  let origin = base + along(outer, params.b_ld, K_DOWN);
  let i = origin + along(lane, params.b_ld, K_DOWN);
  let inner = select(1u, COLUMN_STEP, K_DOWN);
  let outer_step = select(COLUMN_STEP, 1u, K_DOWN) * params.b_ld;
  let stored = mat4x4<f32>(
    four_b(i, inner, last),
    four_b(i + outer_step, inner, last),
    four_b(i + 2u * outer_step, inner, last),
    four_b(i + 3u * outer_step, inner, last),
  );
  if K_DOWN {
    return keep(stored, count);
  }
  return keep(transpose(stored), count);
}
