// Results of gemm/cooperative by way of workgroup memory, a fragment of each part at a time.
//
// needs: TC, BINDING_C (of c), lib/matmul, lib/fragments, lib/line_exponents or lib/no_line_exponents, Tile

@group(0) @binding(BINDING_C + 1u) var<storage, read_write> c2: array<vec2<TC>>;
@group(0) @binding(BINDING_C + 2u) var<storage, read_write> c4: array<vec4<TC>>;

// Writes a fragment of each part, which begins at `inner` of the part, from workgroup memory to C. Sums are
// read before the first is written: between conditional writes, each would be waited for.
fn write_out(tile: Tile, index: u32, inner: vec2<u32>) {
  let part = index / SHARERS;
  let origin = vec2<u32>(tile.row, tile.column) + part_of(part) + inner;
  let sums = start_c(part * SUBGROUPS_K);
  let whole = tile.row + TILE_M <= params.m && tile.column + TILE_N <= params.n;
  if whole && SUBGROUPS_K == 1u {
    let lane = index % SUBGROUP;
    if (tile.c | params.c_ld) % 4u == 0u {
      write_aligned(tile, origin, sums, lane);
    } else {
      let upper = shifted(tile, origin, sums, lane);
      let lower = shifted(tile, origin + vec2<u32>(FRAGMENT / 2u, 0u), sums + FRAGMENT / 2u * STRIDE_C, lane);
      write_shifted(upper);
      write_shifted(lower);
    }
  } else {
    write_some(tile, origin, sums, index % SHARERS);
  }
}

fn four_sums(first: u32) -> vec4<f32> {
  return vec4<f32>(sh_c[first], sh_c[first + 1u], sh_c[first + 2u], sh_c[first + 3u]);
}

// Where an invocation's four lies in the upper half of a fragment, as (row, column).
fn four_of(lane: u32) -> vec2<u32> {
  const ACROSS = FRAGMENT / 4u;
  return vec2<u32>(lane / ACROSS, lane % ACROSS * 4u);
}

// A fragment that is all of C, whose rows begin at whole vec4s.
fn write_aligned(tile: Tile, origin: vec2<u32>, sums: u32, lane: u32) {
  let inner = four_of(lane);
  let place = origin + inner;
  let at = tile.c + place.x * params.c_ld + place.y;
  let below = at + FRAGMENT / 2u * params.c_ld;
  let first = sums + inner.x * STRIDE_C + inner.y;
  let upper = unscaled_four(four_sums(first), place.x, place.y, 4u);
  let lower =
    unscaled_four(four_sums(first + FRAGMENT / 2u * STRIDE_C), place.x + FRAGMENT / 2u, place.y, 4u);
  let v = vec4<TC>(finish_four(upper, place.x, place.y, at, 4u));
  let w = vec4<TC>(finish_four(lower, place.x + FRAGMENT / 2u, place.y, below, 4u));
  c4[at / 4u] = v;
  c4[below / 4u] = w;
}

// What an invocation writes of a row that begins anywhere: a four, aligned in memory unless it is the row's
// last and thus not whole, and one of the elements before and after the whole ones, if there are any.
struct Shifted {
  at: u32,
  four: vec4<TC>,
  has_four: bool,
  at_one: u32,
  one: TC,
  has_one: bool,
}

fn shifted(tile: Tile, origin: vec2<u32>, sums: u32, lane: u32) -> Shifted {
  let inner = four_of(lane);
  let row = origin.x + inner.x;
  let start = tile.c + row * params.c_ld + origin.y;
  let before = (4u - start % 4u) % 4u;
  let has_four = before == 0u || inner.y + 4u < FRAGMENT;
  let column = inner.y + select(0u, before, has_four);
  let i = inner.y / 4u;
  let column_one = select(i, FRAGMENT - 4u + i, i >= before);
  let from_row = sums + inner.x * STRIDE_C;
  let four = unscaled_four(four_sums(from_row + column), row, origin.y + column, 4u);
  let one = unscaled(sh_c[from_row + column_one], row, origin.y + column_one);
  return Shifted(
    start + column,
    vec4<TC>(finish_four(four, row, origin.y + column, start + column, 4u)),
    has_four,
    start + column_one,
    finish(one, row, origin.y + column_one, start + column_one),
    before != 0u,
  );
}

fn write_shifted(v: Shifted) {
  if v.has_four { c4[v.at / 4u] = v.four; }
  if v.has_one { c[v.at_one] = v.one; }
}

// What C has of a fragment, whose sums may be shared.
fn write_some(tile: Tile, origin: vec2<u32>, from_sums: u32, sharer: u32) {
  const ACROSS = FRAGMENT / 4u;
  const VEC4S = FRAGMENT * ACROSS;
  const ROUNDS = (VEC4S + SHARERS - 1u) / SHARERS;
  let aligned = (tile.c | params.c_ld | params.n) % 4u == 0u;
  var vec4s: array<vec4<f32>, ROUNDS>;
  for (var r = 0u; r < ROUNDS; r++) {
    let i = min(r * SHARERS + sharer, VEC4S - 1u);
    let first = from_sums + i / ACROSS * STRIDE_C + i % ACROSS * 4u;
    vec4s[r] =
      vec4<f32>(shared_sum(first), shared_sum(first + 1u), shared_sum(first + 2u), shared_sum(first + 3u));
  }
  for (var r = 0u; r < ROUNDS; r++) {
    let i = r * SHARERS + sharer;
    let place = origin + vec2<u32>(i / ACROSS, i % ACROSS * 4u);
    let inside = i < VEC4S && place.x < params.m;
    let count = select(0u, min(max(params.n, place.y) - place.y, 4u), inside);
    if count > 0u {
      let at = tile.c + place.x * params.c_ld + place.y;
      let sums = unscaled_four(vec4s[r], place.x, place.y, count);
      let v = vec4<TC>(finish_four(sums, place.x, place.y, at, count));
      if aligned {
        c4[at / 4u] = v;
      } else {
        write_pairs(at, v, count);
      }
    }
  }
}

// Writes the first `count` of four elements from `at` on, in twos where they are aligned.
fn write_pairs(at: u32, v: vec4<TC>, count: u32) {
  if at % 2u == 0u {
    if count > 1u { c2[at / 2u] = v.xy; } else { c[at] = v.x; }
    if count > 3u { c2[at / 2u + 1u] = v.zw; } else if count > 2u { c[at + 2u] = v.z; }
  } else {
    c[at] = v.x;
    if count > 2u { c2[at / 2u + 1u] = v.yz; } else if count > 1u { c[at + 1u] = v.y; }
    if count > 3u { c[at + 3u] = v.w; }
  }
}
