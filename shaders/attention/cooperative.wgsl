// O = softmax(cap(scale · Q·Kᵀ) + mask) · V for operands of f16, multiplied by the device's tensor cores,
// which add in f32.
//
// A workgroup works on TILE_Q queries of one head, of which each of its SUBGROUPS subgroups has PARTS parts
// of 16. Blocks of keys and values pass through workgroup memory; a subgroup works on SLICE of them at a
// time, from the first that some of its queries sees to the last. Queries, weights and the output never leave the
// registers: they are fragments of 16 × 16, whose elements lib/fragment_elements names.
//
// Vectors that are too long for a subgroup's registers are shared by DIM_SUBGROUPS of them, a team: each has a range of
// DIM / DIM_SUBGROUPS elements of the team's queries, whose products with its elements of the keys are exchanged in
// workgroup memory and added, and makes its range of the output's columns.
//
// With WIDE_KEYS, an invocation reads eight neighbouring elements of a key at once, which are its elements of
// two fragments: sums of products don't depend on the order of what is added, so they may stand for any of the
// fragments' depth, if those of the queries do. Otherwise the device loads fragments of keys.
//
// The output is rarely rescaled: a query's reference, from which its weights are counted, is raised only by a
// score that is far above it. Weights are at most 2⁸ then, which f16 holds (after FlashAttention-4, 2025).
// References are in powers of two, because scores are small here: neither the scale nor the softcap is large.
//
// `attend` is written by src/ops/attention/fragments.rs: its loops over fragments have to be unrolled. It
// calls the functions of this file.
//
// Starts, strides and lengths of vectors are multiples of eight elements.
//
// needs: T = f16, SUBGROUPS, DIM_SUBGROUPS, PARTS, DIM, BLOCK, SLICE, WIDE_KEYS, LOOPED, lib/attention,
// lib/attention_contiguous, lib/attention_seen, lib/attention_sinks, lib/fragment_elements, lib/workgroup_tiles

const SUBGROUP: u32 = 32u;
const FRAGMENT: u32 = 16u;
const THREADS: u32 = SUBGROUPS * SUBGROUP;
// Subgroups with queries of their own, or teams of them.
const TEAMS: u32 = SUBGROUPS / DIM_SUBGROUPS;
// Queries of a team, and of the workgroup.
const QUERIES: u32 = PARTS * FRAGMENT;
const TILE_Q: u32 = TEAMS * QUERIES;
// Elements of a subgroup's range of the vectors.
const RANGE: u32 = DIM / DIM_SUBGROUPS;

// Vectors in groups of eight elements: what an invocation moves in an iteration.
const VEC8S: u32 = DIM / 8u;

// Rows of workgroup memory, in vectors of four: 16 bytes longer than their content, against bank conflicts.
const STRIDE: u32 = DIM / 4u + 2u;
// The first row of the values, and the end of all.
const VALUES: u32 = select(BLOCK, 0u, WIDE_KEYS == 1u);
const ROWS: u32 = VALUES + BLOCK;

// Rows of wide keys, in groups of eight: an odd number of halves of all banks, so that the groups that eight
// invocations read, of two neighbouring rows, lie in different ones.
const KEY_STRIDE: u32 = VEC8S + (12u - VEC8S % 8u) % 8u;

// The output passes through workgroup memory in as many passes of columns as it has to, so many fragments each of
// every range, in groups of eight elements.
const PASSES: u32 = (TEAMS * FRAGMENT + ROWS - 1u) / ROWS;
const PASS_FRAGMENTS: u32 = (RANGE / FRAGMENT + PASSES - 1u) / PASSES;
const RANGE_VEC8S: u32 = 2u * PASS_FRAGMENTS;
const PASS_VEC8S: u32 = DIM_SUBGROUPS * RANGE_VEC8S;
const OUT_STRIDE: u32 = 2u * PASS_VEC8S + 2u;
// Iterations in which a pass is written, and their vec4s.
const PASS_ITERATIONS: u32 = RANGE_VEC8S / 2u;
const PASS_VEC4S: u32 = 2u * PASS_ITERATIONS;

// How far a score may be above the reference, in powers of two.
const HEADROOM: f32 = 8.0;

const_assert PARTS * PASSES * PASS_VEC4S <= 32u;
const_assert DIM % FRAGMENT == 0u && BLOCK * VEC8S % THREADS == 0u && BLOCK % SLICE == 0u && SLICE % FRAGMENT == 0u;

// A block of keys, unless they are wide, then one of values; at first and at last, 16 queries or columns of
// their output of each team.
var<workgroup> sh: array<vec4<f16>, max(ROWS * STRIDE, TEAMS * FRAGMENT * OUT_STRIDE)>;
// A block of wide keys; nothing where there are none.
var<workgroup> sh_keys: array<vec4<u32>, select(1u, BLOCK * KEY_STRIDE, WIDE_KEYS == 1u)>;
// Sums of weights of the rows of a part, with their sinks'.
var<workgroup> sh_totals: array<f32, TEAMS * FRAGMENT>;
// Each invocation's partial products of a slice, with its range of the keys; nothing where there are no teams.
const PARTIALS: u32 = PARTS * SLICE / FRAGMENT * 2u;
var<workgroup> sh_partials: array<vec4<f32>, select(1u, PARTIALS * THREADS, DIM_SUBGROUPS > 1u)>;

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

// The query of a row of workgroup memory.
fn query_of(tile: Tile, part: u32, row: u32) -> u32 {
  return tile.query + row / FRAGMENT * QUERIES + part * FRAGMENT + row % FRAGMENT;
}

// The keys that some query of a team sees: whole slices from the first, to before the last.
fn keys_of(tile: Tile, team: u32) -> vec2<u32> {
  let first = min(tile.query + team * QUERIES, params.seq_q - 1u);
  let last = min(first + QUERIES, params.seq_q) - 1u;
  return vec2<u32>(visible(first, tile.real).x / SLICE * SLICE, visible(last, tile.real).y);
}

// The keys that every query of a team sees, from the first to before the last.
fn keys_of_all(tile: Tile, team: u32) -> vec2<u32> {
  let first = min(tile.query + team * QUERIES, params.seq_q - 1u);
  let last = min(first + QUERIES, params.seq_q) - 1u;
  return vec2<u32>(visible(last, tile.real).x, visible(first, tile.real).y);
}

// Puts eight elements into a row of workgroup memory.
fn put(row: u32, eighth: u32, bits: vec4<u32>) {
  sh[row * STRIDE + 2u * eighth] = halves(bits.xy);
  sh[row * STRIDE + 2u * eighth + 1u] = halves(bits.zw);
}

// The first element of a group of eight in a pass: of each range, the groups that follow those of the pass before.
fn pass_element(pass_number: u32, eighth: u32) -> u32 {
  return eighth / RANGE_VEC8S * RANGE + (pass_number * RANGE_VEC8S + eighth % RANGE_VEC8S) * 8u;
}

// Puts a pass of columns of a part's queries into workgroup memory. Queries beyond the last are the last, and
// not written.
fn stage_q(tile: Tile, index: u32, part: u32, pass_number: u32) {
  for (var i = index; i < TEAMS * FRAGMENT * PASS_VEC8S; i += THREADS) {
    let d = pass_element(pass_number, i % PASS_VEC8S);
    let query = min(query_of(tile, part, i / PASS_VEC8S), params.seq_q - 1u);
    var bits = vec4<u32>();
    if d < head_dim() {
      bits = q[(tile.q + query * params.q.w + d) / 8u];
    }
    let at = i / PASS_VEC8S * OUT_STRIDE + i % PASS_VEC8S * 2u;
    sh[at] = halves(bits.xy);
    sh[at + 1u] = halves(bits.zw);
  }
}

// Eight elements of a query, 0 beyond a vector's end. Queries beyond the last are the last, and not written.
fn fetch_q(tile: Tile, query: u32, d: u32) -> vec4<u32> {
  if d >= head_dim() {
    return vec4<u32>();
  }
  return q[(tile.q + min(query, params.seq_q - 1u) * params.q.w + d) / 8u];
}

// The row and the group of eight elements that an invocation moves in an iteration.
fn place_of(index: u32, iteration: u32) -> vec2<u32> {
  if THREADS % VEC8S == 0u {
    return vec2<u32>(iteration * (THREADS / VEC8S) + index / VEC8S, index % VEC8S);
  }
  let i = iteration * THREADS + index;
  return vec2<u32>(i / VEC8S, i % VEC8S);
}

// Eight elements of a block's keys, 0 beyond a vector's end. Keys beyond the last are the last, and not seen.
// The keys behind the last block, which are fetched while that is worked on, are the last ones too.
fn fetch_k(tile: Tile, index: u32, block: u32, iteration: u32) -> vec4<u32> {
  let place = place_of(index, iteration);
  let key = min(block * BLOCK + place.x, params.seq_kv - 1u);
  let d = place.y * 8u;
  if d >= head_dim() {
    return vec4<u32>();
  }
  return k[(tile.k + key * params.k.w + d) / 8u];
}

// Eight elements of a block's values, 0 for keys that nobody sees, whatever is stored there.
fn fetch_v(tile: Tile, index: u32, block: u32, iteration: u32) -> vec4<u32> {
  let place = place_of(index, iteration);
  let key = block * BLOCK + place.x;
  let d = place.y * 8u;
  if d >= head_dim() || key >= tile.end {
    return vec4<u32>();
  }
  return v[(tile.v + key * params.v.w + d) / 8u];
}

// Eight elements of a block of which some query sees the last key, and of vectors that fill the tile: without
// comparisons. `at` is the invocation's first group of the block, kept as a sum from block to block: computed
// from where the head begins, it took the driver a division by `group` in each block.
fn fetch_whole_k(at: u32, iteration: u32) -> vec4<u32> {
  return k[at + iteration * (THREADS / VEC8S) * (params.k.w / 8u)];
}

fn fetch_whole_v(at: u32, iteration: u32) -> vec4<u32> {
  return v[at + iteration * (THREADS / VEC8S) * (params.v.w / 8u)];
}

// The first group of eight elements of a block that an invocation moves, where THREADS are whole rows.
fn first_group(start: u32, stride: u32, block: u32, index: u32) -> u32 {
  return start / 8u + (block * BLOCK + index / VEC8S) * (stride / 8u) + index % VEC8S;
}

// Puts eight elements of a key or a value into workgroup memory.
fn stage_k(index: u32, iteration: u32, bits: vec4<u32>) {
  let place = place_of(index, iteration);
  if WIDE_KEYS == 1u {
    sh_keys[place.x * KEY_STRIDE + place.y] = bits;
  } else {
    put(place.x, place.y, bits);
  }
}

fn stage_v(index: u32, iteration: u32, bits: vec4<u32>) {
  let place = place_of(index, iteration);
  put(VALUES + place.x, place.y, bits);
}

// Stores products with the subgroup's range of the keys for the rest of its team. Invocations of a subgroup have
// neighbouring vectors.
fn store_partial(index: u32, number: u32, products: Elements) {
  sh_partials[2u * number * THREADS + index] = products.low;
  sh_partials[(2u * number + 1u) * THREADS + index] = products.high;
}

// Products with whole keys: the sums of the partial ones that the subgroups of a team have stored.
fn sum_of_partials(index: u32, number: u32) -> Elements {
  var whole: Elements;
  let first = index / (SUBGROUP * DIM_SUBGROUPS) * (SUBGROUP * DIM_SUBGROUPS) + index % SUBGROUP;
  for (var i = 0u; i < DIM_SUBGROUPS; i++) {
    whole.low += sh_partials[2u * number * THREADS + first + i * SUBGROUP];
    whole.high += sh_partials[(2u * number + 1u) * THREADS + first + i * SUBGROUP];
  }
  return whole;
}

// Scores of a query from its products with `key` and its neighbours, as Elements has them.
fn scores_of_row(tile: Tile, products: vec4<f32>, query: u32, key: u32) -> vec4<f32> {
  let at = min(query, params.seq_q - 1u);
  let keys = key + vec4<u32>(0u, 1u, 8u, 9u);
  var x = products;
  if has(NATURAL) {
    x = scaled(products);
  }
  if has(HAS_MASK) {
    let at_mask = mask_row(tile.batch, tile.head, at) + min(keys, vec4<u32>(params.seq_kv - 1u));
    x = vec4<f32>(masked(x.x, at_mask.x), masked(x.y, at_mask.y), masked(x.z, at_mask.z), masked(x.w, at_mask.w));
  }
  let seen = visible(at, tile.real);
  return select(x, vec4<f32>(-inf()), (keys < vec4<u32>(seen.x)) | (keys >= vec4<u32>(seen.y)));
}

fn scores(tile: Tile, products: Elements, query: u32, key: u32) -> Elements {
  return Elements(
    scores_of_row(tile, products.low, query, key),
    scores_of_row(tile, products.high, query + 8u, key),
  );
}

// Weights of scores. −∞ gives 0 and NaN gives NaN, as exponentials of the devices that this is for have it.
fn weigh(scores: Elements, unit: f32, references: vec2<f32>) -> Elements {
  let low = exp2(fma(scores.low, vec4<f32>(unit), vec4<f32>(-references.x)));
  let high = exp2(fma(scores.high, vec4<f32>(unit), vec4<f32>(-references.y)));
  return Elements(low, high);
}

// The denominator of a row of the tile's head.
fn denominator_of(tile: Tile, reference: f32, total: f32) -> Denominator {
  return denominator(reference / score_unit(), total, sink_of(tile.head));
}

fn write_lse(tile: Tile, query: u32, log_sum: f32) {
  if has(HAS_LSE) && query < params.seq_q {
    let row = (tile.batch * params.heads + tile.head) * params.seq_q + query;
    lse[params.lse_offset + row] = log_sum;
  }
}

// Where four elements of the output lie.
fn output_at(tile: Tile, query: u32, d: u32) -> u32 {
  return (params.o.x + tile.batch * params.o.y + tile.head * params.o.z + query * params.o.w + d) / 4u;
}

// Of the eight elements that an invocation writes in an iteration: their row of workgroup memory, the group in it, and the
// output's column.
fn output_place(index: u32, iteration: u32, pass_number: u32) -> vec3<u32> {
  let i = iteration * THREADS + index;
  let eighth = i % PASS_VEC8S;
  return vec3<u32>(i / PASS_VEC8S, eighth, pass_element(pass_number, eighth));
}

// Writes a pass of a part of the output from workgroup memory. Returns bits of the invocation's vec4s that
// aren't finite though the sum of their weights is.
fn write_out(tile: Tile, index: u32, part: u32, pass_number: u32) -> u32 {
  var wrong = 0u;
  for (var iteration = 0u; iteration < PASS_ITERATIONS; iteration++) {
    let place = output_place(index, iteration, pass_number);
    let query = query_of(tile, part, place.x);
    if query < params.seq_q && place.z < head_dim() {
      let row = place.x * OUT_STRIDE + place.y * 2u;
      let at = output_at(tile, query, place.z);
      let low = sh[row];
      let high = sh[row + 1u];
      o[at] = low;
      o[at + 1u] = high;
      if is_defined(sh_totals[place.x]) {
        let bits = select(0u, 1u, !is_finite(vec4<f32>(low))) | select(0u, 2u, !is_finite(vec4<f32>(high)));
        wrong |= bits << ((part * PASSES + pass_number) * PASS_VEC4S + 2u * iteration);
      }
    }
  }
  return wrong;
}

// Makes the vec4s anew that `write_out` returned bits of. Apart from it, because compilers write out its loop,
// and with it all that it calls.
fn mend(tile: Tile, index: u32, bits: u32) {
  for (var wrong = bits; wrong != 0u; wrong &= wrong - 1u) {
    let bit = firstTrailingBit(wrong);
    let number = bit / PASS_VEC4S;
    let place = output_place(index, bit % PASS_VEC4S / 2u, number % PASSES);
    let query = query_of(tile, number / PASSES, place.x);
    let d = place.z + bit % 2u * 4u;
    let at = output_at(tile, query, d);
    // Loaded again, as one register more through all blocks of keys costs up to half of the time.
    let real = real_keys(tile.batch);
    let sink = sink_of(tile.head);
    o[at] = vec4<f16>(mean_of_seen(tile.batch, real, tile.head, query, d, sink, vec4<f32>(o[at])));
  }
}

fn make_tile(flat: u32, index: u32) {
  attend(tile_of(flat), index);
}
