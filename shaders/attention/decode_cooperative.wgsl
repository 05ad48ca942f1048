// Attention of few queries of f16 like attention/decode, multiplied by the device's matrix units, which add in f32: the
// ROWS rows that share keys are rows of one fragment of 16 × 16, and those that the fragment has beyond them aren't used.
//
// Keys come in blocks of BLOCK: their scores, in which each subgroup has one fragment, or a half of its products; then
// the block's part of the output, in which it has DIM / 4 columns. Both leave the fragments through workgroup memory,
// because their elements can't be named: the output is summed up outside, where it can be rescaled.
//
// `attend` is written by src/ops/attention/decode_fragments.rs: its loops over fragments have to be unrolled. It calls
// the functions of this file.
//
// Starts, strides and lengths of vectors are multiples of eight elements.
//
// needs: T = f16, ROWS, BLOCK, DIM, lib/attention, lib/attention_pieces

const SUBGROUP: u32 = 32u;
const SUBGROUPS: u32 = 4u;
const THREADS: u32 = SUBGROUPS * SUBGROUP;
const FRAGMENT: u32 = 16u;
const COLUMNS: u32 = BLOCK / FRAGMENT;
// Subgroups that share the products of one fragment of scores.
const LAYERS: u32 = SUBGROUPS / COLUMNS;

// Vectors in groups of eight elements: what an invocation moves at once, and keys that the workgroup moves in one turn.
const EIGHTS: u32 = DIM / 8u;
const TURN: u32 = THREADS / EIGHTS;

// Rows of workgroup memory, in vectors of four: 16 bytes longer than their content, against bank conflicts.
const STRIDE: u32 = DIM / 4u + 2u;
const STRIDE_P: u32 = BLOCK / 4u + 2u;
const STRIDE_S: u32 = BLOCK / 4u + 1u;
const STRIDE_O: u32 = DIM / 4u + 1u;

// Invocations that have scores, of a row in all, and how many fours each has.
const WEIGHERS: u32 = min(THREADS, ROWS * BLOCK / 4u);
const WEIGHERS_OF_ROW: u32 = WEIGHERS / ROWS;
const FOURS: u32 = ROWS * BLOCK / 4u / WEIGHERS;
// Invocations that have numbers of the output.
const SUMMERS: u32 = min(THREADS, ROWS * DIM / 4u);

const_assert LAYERS * COLUMNS == SUBGROUPS && ROWS <= FRAGMENT && DIM % (SUBGROUPS * FRAGMENT) == 0u;

@group(0) @binding(0) var<storage, read> q: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> k: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> v: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> mask: array<T>;
@group(0) @binding(4) var<storage, read> lengths: array<u32>;
@group(0) @binding(5) var<storage, read_write> parts: array<vec4<f32>>;

// The queries at first, then a block of keys or of values.
var<workgroup> sh_kv: array<vec4<f16>, BLOCK * STRIDE>;
// Weights; scores of each layer, or a block's part of the output.
var<workgroup> sh_p: array<vec4<f16>, FRAGMENT * STRIDE_P>;
var<workgroup> sh_s: array<vec4<f32>, FRAGMENT * max(LAYERS * STRIDE_S, STRIDE_O)>;
// A number of each invocation, and by how much each row's sums shrink.
var<workgroup> sh_each: array<f32, THREADS>;
var<workgroup> sh_factors: array<f32, ROWS>;

// The same bits as elements. The way through f32 changes no number, and compilers leave it out.
fn halves(bits: vec2<u32>) -> vec4<f16> {
  return vec4<f16>(vec4<f32>(unpack2x16float(bits.x), unpack2x16float(bits.y)));
}

// Puts the queries into workgroup memory, 0 beyond a vector's end.
fn stage_q(tile: Tile, index: u32) {
  for (var i = index; i < FRAGMENT * EIGHTS; i += THREADS) {
    let place = place_of(tile, min(tile.row + min(i / EIGHTS, ROWS - 1u), rows() - 1u));
    let d = i % EIGHTS * 8u;
    var bits = vec4<u32>();
    if d < params.head_dim {
      bits = q[(params.q.x + tile.batch * params.q.y + place.x * params.q.z + place.y * params.q.w + d) / 8u];
    }
    let at = i / EIGHTS * STRIDE + i % EIGHTS * 2u;
    sh_kv[at] = halves(bits.xy);
    sh_kv[at + 1u] = halves(bits.zw);
  }
}

// Eight elements of a block's keys, 0 beyond a vector's end. Keys beyond the last are the last, and not seen.
fn fetch_k(tile: Tile, index: u32, block: u32, turn: u32) -> vec4<u32> {
  let key = min(block + turn * TURN + index / EIGHTS, max(tile.end, 1u) - 1u);
  let d = index % EIGHTS * 8u;
  if d >= params.head_dim {
    return vec4<u32>();
  }
  return k[(tile.k + key * params.k.w + d) / 8u];
}

// The same of values, which are 0 for keys that nobody sees, whatever is stored there.
fn fetch_v(tile: Tile, index: u32, block: u32, turn: u32) -> vec4<u32> {
  let key = block + turn * TURN + index / EIGHTS;
  let d = index % EIGHTS * 8u;
  if d >= params.head_dim || key >= tile.end {
    return vec4<u32>();
  }
  return v[(tile.v + key * params.v.w + d) / 8u];
}

// Puts them into workgroup memory.
fn stage(index: u32, turn: u32, bits: vec4<u32>) {
  let at = (turn * TURN + index / EIGHTS) * STRIDE + index % EIGHTS * 2u;
  sh_kv[at] = halves(bits.xy);
  sh_kv[at + 1u] = halves(bits.zw);
}

// An invocation's row of scores, and the place of its fours there.
fn row_of(index: u32) -> u32 {
  return index / WEIGHERS_OF_ROW;
}

fn four_of(index: u32, i: u32) -> u32 {
  return index % WEIGHERS_OF_ROW * FOURS + i;
}

// Four scores of a block, from products in workgroup memory. `plain`: every row sees the block, and there is no mask.
fn score(tile: Tile, index: u32, i: u32, block: u32, plain: bool) -> vec4<f32> {
  if index >= WEIGHERS {
    return vec4<f32>(UNSEEN);
  }
  let four = four_of(index, i);
  var sum = sh_s[row_of(index) * STRIDE_S + four];
  if LAYERS == 2u {
    sum += sh_s[(FRAGMENT + row_of(index)) * STRIDE_S + four];
  }
  var x = scaled(sum);
  if plain {
    return x;
  }
  let place = place_of(tile, min(tile.row + row_of(index), rows() - 1u));
  let seen = visible(place.y, tile.real);
  let row = mask_row(tile.batch, place.x, place.y);
  for (var j = 0u; j < 4u; j++) {
    let key = block + 4u * four + j;
    if key < seen.x || key >= min(seen.y, tile.end) {
      x[j] = UNSEEN;
    } else if has(HAS_MASK) {
      x[j] = masked(x[j], row + key);
    }
  }
  return x;
}

fn largest(x: vec4<f32>) -> f32 {
  return max(max(x.x, x.y), max(x.z, x.w));
}

// The largest number, or the sum, of what the invocations of a row have in workgroup memory.
fn largest_of_row(index: u32) -> f32 {
  let first = index - index % WEIGHERS_OF_ROW;
  var result = sh_each[first];
  for (var i = 1u; i < WEIGHERS_OF_ROW; i++) {
    result = max(result, sh_each[first + i]);
  }
  return result;
}

fn sum_of_row(index: u32) -> f32 {
  let first = index - index % WEIGHERS_OF_ROW;
  var result = sh_each[first];
  for (var i = 1u; i < WEIGHERS_OF_ROW; i++) {
    result += sh_each[first + i];
  }
  return result;
}

fn share_factor(index: u32, factor: f32) {
  if index < WEIGHERS && index % WEIGHERS_OF_ROW == 0u {
    sh_factors[row_of(index)] = factor;
  }
}

// Puts the weights of four scores into workgroup memory, and returns their sum.
fn weigh(index: u32, i: u32, score: vec4<f32>, peak: f32) -> f32 {
  let w = weights(score - peak);
  if index < WEIGHERS {
    sh_p[row_of(index) * STRIDE_P + four_of(index, i)] = vec4<f16>(w);
  }
  return (w.x + w.y) + (w.z + w.w);
}

// Four numbers of the output with the block's part of it.
fn summed(index: u32, i: u32, before: vec4<f32>) -> vec4<f32> {
  let at = min(index, SUMMERS - 1u) + i * SUMMERS;
  let row = at / (DIM / 4u);
  return before * sh_factors[row] + sh_s[row * STRIDE_O + at % (DIM / 4u)];
}

// Writes four numbers of the output, and what they are relative to.
fn write_four(tile: Tile, index: u32, i: u32, split: u32, splits: u32, numbers: vec4<f32>) {
  let at = index + i * SUMMERS;
  let row = tile.row + at / (DIM / 4u);
  let four = at % (DIM / 4u);
  if index < SUMMERS && row < rows() && 4u * four < params.head_dim {
    parts[part_of(tile, place_of(tile, row), split, splits) / 4u + 1u + four] = numbers;
  }
}

fn write_state(tile: Tile, index: u32, split: u32, splits: u32, peak: f32, total: f32) {
  let row = tile.row + row_of(index);
  if index < WEIGHERS && index % WEIGHERS_OF_ROW == 0u && row < rows() {
    parts[part_of(tile, place_of(tile, row), split, splits) / 4u] = vec4<f32>(peak, total, 0.0, 0.0);
  }
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  attend(tile_of(group), index, group.x, groups.x);
}
