// C = activation(alpha · op(A) · op(B) + beta · C + bias) for each matrix of a batch, tile by tile, with A and B of f16
// multiplied by the device's matrix units, which add in f32.
//
// A workgroup makes a TILE_M × TILE_N tile of C in steps of TILE_K, divided into SUBGROUPS_M × SUBGROUPS_N parts. A
// subgroup makes one part of it, or its share of one part, as fragments of 16 × 16. The operands pass through workgroup
// memory, just as the matrices are stored: whether op is a transposition only decides whether fragments are read from
// there by rows or by columns.
//
// The step itself, `multiply`, is written by src/ops/matmul/fragments.rs: its loops over fragments have to be unrolled.
// It calls the functions of this file and of lib/fragments. The sums leave it through workgroup memory too, because the
// elements of a fragment can't be named.
//
// Starts, leading dimensions, batch strides and extents along memory of A and B are multiples of eight elements. What
// lies beyond the tile's part of a matrix is read as something of the matrix, and its products are not written; beyond
// k it is 0, which only the first step can meet: it takes what k leaves over of whole steps.
//
// needs: TC, ACTIVATION, lib/matmul, and what lib/fragments needs

// Eight elements of A or B are one vector of bits. As vectors of f16 they would be read in two parts, and drivers keep
// them in twice the registers.
@group(0) @binding(0) var<storage, read> a: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> b: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> bias: array<TC>;
@group(0) @binding(3) var<storage, read_write> c: array<TC>;
// C twice more, for writing vectors.
@group(0) @binding(4) var<storage, read_write> c2: array<vec2<TC>>;
@group(0) @binding(5) var<storage, read_write> c4: array<vec4<TC>>;

struct Tile {
  row: u32,
  column: u32,
  c: u32,
  a: Operand,
  b: Operand,
  // How much of k the first step takes, and how many steps there are.
  head: u32,
  steps: u32,
}

fn tile_of(flat: u32) -> Tile {
  let place = tile_place(flat);
  let row = place.x * TILE_M;
  let column = place.y * TILE_N;
  let k = depth(place.z);
  let steps = (k + TILE_K - 1u) / TILE_K;
  return Tile(
    row,
    column,
    params.c_offset + place.z * params.c_batch,
    operand(params.a_offset + place.z * params.a_batch, params.a_ld, row, params.m, k, TRANS_A == 1u),
    operand(params.b_offset + place.z * params.b_batch, params.b_ld, column, params.n, k, TRANS_B == 0u),
    k - (steps - 1u) * TILE_K,
    steps,
  );
}

// A matrix that begins at `base`: `across` of it is the tile's place in the dimension of length `extent` that it does
// not share with the other; k runs from row to row or along the rows.
fn operand(base: u32, ld: u32, across: u32, extent: u32, k: u32, k_down: bool) -> Operand {
  let rows = select(extent, k, k_down);
  let columns = select(k, extent, k_down);
  let first = base + select(across * ld, across, k_down);
  return Operand(first / 8u, (base + (rows - 1u) * ld + columns + 7u) / 8u - 1u, ld / 8u);
}

// The group that is `turn` turns below an invocation's first.
fn fetch_a(tile: Tile, at: u32, turn: u32) -> vec4<u32> {
  return a[min(at + turn * TURN_A * tile.a.ld, tile.a.last)];
}

fn fetch_b(tile: Tile, at: u32, turn: u32) -> vec4<u32> {
  return b[min(at + turn * TURN_B * tile.b.ld, tile.b.last)];
}

// A group of the first step, with 0 for what lies beyond it.
fn keep_a(tile: Tile, index: u32, turn: u32, group: vec4<u32>) -> vec4<u32> {
  let place = lane_place(index, EIGHTS_A);
  let k = select(place.y * 8u, place.x + turn * TURN_A, TRANS_A == 1u);
  return select(vec4<u32>(), group, k < tile.head);
}

fn keep_b(tile: Tile, index: u32, turn: u32, group: vec4<u32>) -> vec4<u32> {
  let place = lane_place(index, EIGHTS_B);
  let k = select(place.y * 8u, place.x + turn * TURN_B, TRANS_B == 0u);
  return select(vec4<u32>(), group, k < tile.head);
}

// Writes a fragment of each part, which begins at `inner` of the part, from workgroup memory to C. Sums are read before
// the first is written: between conditional writes, each would be waited for.
fn write_out(tile: Tile, index: u32, inner: vec2<u32>) {
  let part = index / SHARERS;
  let corner = vec2<u32>(tile.row, tile.column) + part_of(part) + inner;
  let sums = start_c(part * SUBGROUPS_K);
  let whole = tile.row + TILE_M <= params.m && tile.column + TILE_N <= params.n;
  if whole && SUBGROUPS_K == 1u {
    let lane = index % SUBGROUP;
    if (tile.c | params.c_ld) % 4u == 0u {
      write_aligned(tile, corner, sums, lane);
    } else {
      let upper = shifted(tile, corner, sums, lane);
      let lower = shifted(tile, corner + vec2<u32>(FRAGMENT / 2u, 0u), sums + FRAGMENT / 2u * STRIDE_C, lane);
      write_shifted(upper);
      write_shifted(lower);
    }
  } else {
    write_some(tile, corner, sums, index % SHARERS);
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

// A fragment that is all of C, whose rows begin at whole fours.
fn write_aligned(tile: Tile, corner: vec2<u32>, sums: u32, lane: u32) {
  let inner = four_of(lane);
  let place = corner + inner;
  let at = tile.c + place.x * params.c_ld + place.y;
  let below = at + FRAGMENT / 2u * params.c_ld;
  let first = sums + inner.x * STRIDE_C + inner.y;
  let upper = four_sums(first);
  let lower = four_sums(first + FRAGMENT / 2u * STRIDE_C);
  let v = vec4<TC>(finish_four(upper, place.x, place.y, at, 4u));
  let w = vec4<TC>(finish_four(lower, place.x + FRAGMENT / 2u, place.y, below, 4u));
  c4[at / 4u] = v;
  c4[below / 4u] = w;
}

// What an invocation writes of a row that begins anywhere: a four, aligned in memory unless it is the row's last and
// thus not whole, and one of the elements before and after the whole ones, if there are any.
struct Shifted {
  at: u32,
  four: vec4<TC>,
  has_four: bool,
  at_one: u32,
  one: TC,
  has_one: bool,
}

fn shifted(tile: Tile, corner: vec2<u32>, sums: u32, lane: u32) -> Shifted {
  let inner = four_of(lane);
  let row = corner.x + inner.x;
  let start = tile.c + row * params.c_ld + corner.y;
  let before = (4u - start % 4u) % 4u;
  let has_four = before == 0u || inner.y + 4u < FRAGMENT;
  let column = inner.y + select(0u, before, has_four);
  let i = inner.y / 4u;
  let column_one = select(i, FRAGMENT - 4u + i, i >= before);
  let from_row = sums + inner.x * STRIDE_C;
  let four = four_sums(from_row + column);
  let one = sh_c[from_row + column_one];
  return Shifted(
    start + column,
    vec4<TC>(finish_four(four, row, corner.y + column, start + column, 4u)),
    has_four,
    start + column_one,
    finish(one, row, corner.y + column_one, start + column_one),
    before != 0u,
  );
}

fn write_shifted(v: Shifted) {
  if v.has_four { c4[v.at / 4u] = v.four; }
  if v.has_one { c[v.at_one] = v.one; }
}

// What C has of a fragment, whose sums may be shared.
fn write_some(tile: Tile, corner: vec2<u32>, sums: u32, sharer: u32) {
  const ACROSS = FRAGMENT / 4u;
  const FOURS = FRAGMENT * ACROSS;
  const ROUNDS = (FOURS + SHARERS - 1u) / SHARERS;
  let aligned = (tile.c | params.c_ld | params.n) % 4u == 0u;
  var fours: array<vec4<f32>, ROUNDS>;
  for (var r = 0u; r < ROUNDS; r++) {
    let i = min(r * SHARERS + sharer, FOURS - 1u);
    let first = sums + i / ACROSS * STRIDE_C + i % ACROSS * 4u;
    fours[r] =
      vec4<f32>(shared_sum(first), shared_sum(first + 1u), shared_sum(first + 2u), shared_sum(first + 3u));
  }
  for (var r = 0u; r < ROUNDS; r++) {
    let i = r * SHARERS + sharer;
    let place = corner + vec2<u32>(i / ACROSS, i % ACROSS * 4u);
    let inside = i < FOURS && place.x < params.m;
    let count = select(0u, min(max(params.n, place.y) - place.y, 4u), inside);
    if count > 0u {
      let at = tile.c + place.x * params.c_ld + place.y;
      let v = vec4<TC>(finish_four(fours[r], place.x, place.y, at, count));
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
  multiply(tile_of(flat), index);
}
