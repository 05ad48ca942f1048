// The operand of few rows in gemm/skinny, on its way into workgroup memory.
//
// needs: what gemm/skinny defines

// Four elements of A for the part from `k` on, something of A where there is nothing. Neighbours read what is
// adjacent in memory. Loads under conditions would wait for each other.
fn fetch_a(tile: Tile, k: u32, i: u32) -> vec4<f32> {
  let place = place_a(i);
  let row = min(tile.row + place.x, params.m - 1u);
  let column = k + 4u * place.y;
  let base = params.a_offset + tile.batch * params.a_batch;
  if A_VEC4S == 1u {
    return vec4<f32>(a_vec4s[(base + row * params.a_ld + min(column, tile.end - 4u)) / 4u]);
  }
  let ld = select(1u, params.a_ld, TRANS_A == 1u);
  let first = base + select(row * params.a_ld, row, TRANS_A == 1u);
  let at = min(column + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(tile.end - 1u)) * ld + first;
  return vec4<f32>(f32(a[at.x]), f32(a[at.y]), f32(a[at.z]), f32(a[at.w]));
}

// Four elements of A for the part at `k` of the first k-block, which begins with `pad` zeros.
fn first_of_a(tile: Tile, k: u32, pad: u32, i: u32) -> vec4<f32> {
  let at = k + 4u * place_a(i).y + vec4<u32>(0u, 1u, 2u, 3u);
  return select(vec4<f32>(), fetch_a(tile, k - pad, i), at >= vec4<u32>(pad));
}

// The row and the four of A that an invocation fetches.
fn place_a(i: u32) -> vec2<u32> {
  if TRANS_A == 1u {
    // Past the last four is past the last row.
    return select(vec2<u32>(ROWS, 0u), vec2<u32>(i % ROWS, i / ROWS), i < ROWS * VEC4S);
  }
  return vec2<u32>(i / VEC4S, i % VEC4S);
}

// Where a four lies in its row of workgroup memory: of vectors of eight elements, the first halves before the
// second, so that neighbours read what is adjacent.
fn slot(four: u32) -> u32 {
  if TRANS_B == 1u && WIDTH == 8u {
    let inner = four % (2u * THREADS_PER_OUTPUT);
    return four - inner + inner % 2u * THREADS_PER_OUTPUT + inner / 2u;
  }
  return four;
}

// Puts what was fetched of A into a part of workgroup memory.
fn put_a(part: u32, index: u32, next: ptr<function, array<vec4<f32>, FETCHES>>) {
  for (var f = 0u; f < FETCHES; f++) {
    let to = place_a(index + f * THREADS);
    if to.x < ROWS { sh[(part * ROWS + to.x) * VEC4S + slot(to.y)] = (*next)[f]; }
  }
}

// Fetches the part of A from `k` on.
fn next_of_a(tile: Tile, index: u32, k: u32, next: ptr<function, array<vec4<f32>, FETCHES>>) {
  for (var f = 0u; f < FETCHES; f++) {
    (*next)[f] = fetch_a(tile, k, index + f * THREADS);
  }
}
