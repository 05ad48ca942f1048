// O = softmax(cap(scale · Q·Kᵀ) + mask) · V for operands of f16, multiplied by the device's matrix units, which add in f32.
//
// A workgroup works on TILE_Q queries of one head, of which each of its SUBGROUPS subgroups has PARTS parts of 16; keys
// come in blocks of 32. Queries and the output stay in fragments of 16 × 16; scores leave them through workgroup memory,
// because the elements of a fragment can't be named, and come back as weights of f16.
//
// As the output can't be rescaled in place, it rarely is: a query's reference, from which its weights are counted, is
// raised only by a score that is far above it. Weights are at most 2⁸ then, which f16 holds (after FlashAttention-4, 2025).
// A workgroup raises together, because fragments are worked on by all subgroups or none.
//
// `attend` is written by src/ops/attention/fragments.rs: its loops over fragments have to be unrolled. It calls the
// functions of this file.
//
// Starts, strides and lengths of vectors are multiples of eight elements.
//
// needs: T = f16, SUBGROUPS, PARTS, DIM, lib/attention

const SUBGROUP: u32 = 32u;
const FRAGMENT: u32 = 16u;
const THREADS: u32 = SUBGROUPS * SUBGROUP;
const TILE_Q: u32 = SUBGROUPS * PARTS * FRAGMENT;
// Keys of a block, and numbers of the queries that pass through workgroup memory at once.
const BLOCK: u32 = 32u;

// Vectors in groups of eight elements: what an invocation moves at once, and rows that the workgroup moves in one turn.
const EIGHTS: u32 = DIM / 8u;
const TURN: u32 = THREADS / EIGHTS;

// Rows of workgroup memory, in vectors of four: 16 bytes longer than their content, against bank conflicts.
const STRIDE: u32 = DIM / 4u + 2u;
const STRIDE_P: u32 = BLOCK / 4u + 2u;
const STRIDE_S: u32 = BLOCK / 4u + 1u;

// How far a score may be above the reference, in powers of two.
const HEADROOM: f32 = 8.0;

const_assert DIM % BLOCK == 0u && BLOCK * EIGHTS % THREADS == 0u;

@group(0) @binding(0) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> mask: array<T>;
@group(0) @binding(4) var<storage, read> lengths: array<u32>;
@group(0) @binding(5) var<storage, read_write> lse: array<f32>;
@group(0) @binding(6) var<storage, read_write> o: array<vec4<T>>;

// A block of keys, then one of values.
var<workgroup> sh_kv: array<vec4<f16>, 2u * BLOCK * STRIDE>;
// For 16 queries of each subgroup: weights (at first, numbers of the queries), and scores (at times, of the output).
var<workgroup> sh_p: array<vec4<f16>, SUBGROUPS * FRAGMENT * STRIDE_P>;
var<workgroup> sh_s: array<vec4<f32>, SUBGROUPS * FRAGMENT * STRIDE_S>;
// A number of each invocation, and whether references have to be raised.
var<workgroup> sh_each: array<f32, THREADS>;
var<workgroup> sh_raise: u32;

struct Tile {
  batch: u32,
  head: u32,
  query: u32,
  // Where the operands of the head begin.
  q: u32,
  k: u32,
  v: u32,
  // Keys of the batch; blocks of which some query of the tile sees a key, and the end of those keys.
  real: u32,
  first: u32,
  blocks: u32,
  end: u32,
}

fn tile_of(flat: u32) -> Tile {
  let tiles = (params.seq_q + TILE_Q - 1u) / TILE_Q;
  let place = tile_and_head(flat, tiles);
  let query = place.x * TILE_Q;
  let head = place.y % params.heads;
  let batch = place.y / params.heads;
  let kv_head = head / params.group;
  let real = real_keys(batch);
  let end = visible(min(query + TILE_Q, params.seq_q) - 1u, real).y;
  return Tile(
    batch,
    head,
    query,
    params.q.x + batch * params.q.y + head * params.q.z,
    params.k.x + batch * params.k.y + kv_head * params.k.z,
    params.v.x + batch * params.v.y + kv_head * params.v.z,
    real,
    visible(query, real).x / BLOCK,
    (end + BLOCK - 1u) / BLOCK,
    end,
  );
}

// The query of an invocation in a part: two invocations share one, and each has half of a block's keys.
fn query_of(tile: Tile, index: u32, part: u32) -> u32 {
  return tile.query + (index / SUBGROUP * PARTS + part) * FRAGMENT + index % FRAGMENT;
}

fn half_of(index: u32) -> u32 {
  return index / FRAGMENT % 2u;
}

// Its row in workgroup memory.
fn row_of(index: u32) -> u32 {
  return index / SUBGROUP * FRAGMENT + index % FRAGMENT;
}

// The same bits as elements. The way through f32 changes no number, and compilers leave it out.
fn halves(bits: vec2<u32>) -> vec4<f16> {
  return vec4<f16>(vec4<f32>(unpack2x16float(bits.x), unpack2x16float(bits.y)));
}

// Puts 32 numbers of each query of a part into workgroup memory. Queries beyond the last are the last, and not written.
fn stage_q(tile: Tile, index: u32, part: u32, chunk: u32) {
  for (var i = index; i < SUBGROUPS * FRAGMENT * 4u; i += THREADS) {
    let row = i / 4u;
    let d = chunk * BLOCK + i % 4u * 8u;
    let query = min(tile.query + (row / FRAGMENT * PARTS + part) * FRAGMENT + row % FRAGMENT, params.seq_q - 1u);
    var bits = vec4<u32>();
    if d < params.head_dim {
      bits = q[(tile.q + query * params.q.w + d) / 8u];
    }
    sh_p[row * STRIDE_P + i % 4u * 2u] = halves(bits.xy);
    sh_p[row * STRIDE_P + i % 4u * 2u + 1u] = halves(bits.zw);
  }
}

// Eight elements of a block's keys, 0 beyond a vector's end. Keys beyond the last are the last, and not seen.
fn fetch_k(tile: Tile, index: u32, block: u32, turn: u32) -> vec4<u32> {
  let key = min(block * BLOCK + turn * TURN + index / EIGHTS, params.seq_kv - 1u);
  let d = index % EIGHTS * 8u;
  if d >= params.head_dim {
    return vec4<u32>();
  }
  return k[(tile.k + key * params.k.w + d) / 8u];
}

// The same of values, which are 0 for keys that nobody sees, whatever is stored there.
fn fetch_v(tile: Tile, index: u32, block: u32, turn: u32) -> vec4<u32> {
  let key = block * BLOCK + turn * TURN + index / EIGHTS;
  let d = index % EIGHTS * 8u;
  if d >= params.head_dim || key >= tile.end {
    return vec4<u32>();
  }
  return v[(tile.v + key * params.v.w + d) / 8u];
}

// Puts them into workgroup memory: keys from row 0 on, values from row BLOCK on.
fn stage(index: u32, first: u32, turn: u32, bits: vec4<u32>) {
  let at = (first + turn * TURN + index / EIGHTS) * STRIDE + index % EIGHTS * 2u;
  sh_kv[at] = halves(bits.xy);
  sh_kv[at + 1u] = halves(bits.zw);
}

// Whether every query of the tile sees every key of the block, masks aside.
fn is_whole(tile: Tile, block: u32) -> bool {
  let last = min(tile.query + TILE_Q, params.seq_q) - 1u;
  return visible(last, tile.real).x <= block * BLOCK && (block + 1u) * BLOCK <= visible(tile.query, tile.real).y;
}

// An invocation's scores of a block, from products in workgroup memory.
fn scores(tile: Tile, index: u32, part: u32, block: u32, whole: bool) -> array<vec4<f32>, 4> {
  var result: array<vec4<f32>, 4>;
  let at = row_of(index) * STRIDE_S + half_of(index) * 4u;
  for (var c = 0u; c < 4u; c++) {
    result[c] = scaled(sh_s[at + c]);
  }
  if !whole || has(HAS_MASK) {
    let query = min(query_of(tile, index, part), params.seq_q - 1u);
    let seen = visible(query, tile.real);
    let row = mask_row(tile.batch, tile.head, query);
    let first = block * BLOCK + half_of(index) * FRAGMENT;
    for (var c = 0u; c < 4u; c++) {
      for (var j = 0u; j < 4u; j++) {
        let key = first + 4u * c + j;
        if key < seen.x || key >= seen.y {
          result[c][j] = UNSEEN;
        } else if has(HAS_MASK) {
          result[c][j] = masked(result[c][j], row + key);
        }
      }
    }
  }
  return result;
}

// Puts the weights of scores into workgroup memory, and asks for higher references where a score is too far above its
// own: then the weights are too large for f16, and not used. Returns their sum.
fn weigh(index: u32, scores: array<vec4<f32>, 4>, reference: f32) -> f32 {
  let at = row_of(index) * STRIDE_P + half_of(index) * 4u;
  let top4 = max(max(scores[0], scores[1]), max(scores[2], scores[3]));
  let top = max(max(top4.x, top4.y), max(top4.z, top4.w));
  sh_each[index] = top;
  if top > reference + HEADROOM {
    sh_raise = 1u;
  }
  var sums = vec4<f32>();
  for (var c = 0u; c < 4u; c++) {
    let w = weights(scores[c] - reference);
    sums += w;
    sh_p[at + c] = vec4<f16>(w);
  }
  return (sums.x + sums.y) + (sums.z + sums.w);
}

// The largest score, or the sum, of the two invocations that share a query.
fn largest_of_both(index: u32) -> f32 {
  return max(sh_each[index], sh_each[index ^ FRAGMENT]);
}

fn sum_of_both(index: u32) -> f32 {
  return sh_each[index] + sh_each[index ^ FRAGMENT];
}

// Multiplies what is in the place of scores by a factor of each row.
fn rescale(index: u32, factor: f32) {
  let at = row_of(index) * STRIDE_S + half_of(index) * 4u;
  for (var c = 0u; c < 4u; c++) {
    sh_s[at + c] *= factor;
  }
}

// Writes 32 numbers of each query of a part, from the place of scores to O.
fn write_out(tile: Tile, index: u32, part: u32, chunk: u32, inverse: f32) {
  let query = query_of(tile, index, part);
  if query >= params.seq_q {
    return;
  }
  let base = params.o.x + tile.batch * params.o.y + tile.head * params.o.z + query * params.o.w;
  let at = row_of(index) * STRIDE_S + half_of(index) * 4u;
  for (var c = 0u; c < 4u; c++) {
    let d = chunk * BLOCK + half_of(index) * FRAGMENT + 4u * c;
    if d < params.head_dim {
      o[(base + d) / 4u] = vec4<T>(sh_s[at + c] * inverse);
    }
  }
}

fn write_lse(tile: Tile, index: u32, part: u32, reference: f32, total: f32) {
  let query = query_of(tile, index, part);
  if has(HAS_LSE) && query < params.seq_q && half_of(index) == 0u {
    let row = (tile.batch * params.heads + tile.head) * params.seq_q + query;
    lse[params.lse_offset + row] = log_sum(reference, total);
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
  attend(tile_of(flat), index);
}
