// Attention of few queries of f16 like attention/decode, multiplied by the device's tensor cores, which add
// in f32: the ROWS rows that share keys are rows of one fragment of 16 × 16, and those that the fragment has
// beyond them aren't used.
//
// Nothing passes through workgroup memory before the end: invocations read keys and values 16 bytes at a
// time, and these are elements of fragments where they are (lib/fragment_elements). Sums don't depend on the
// order of what is added, so eight neighbouring elements of a key may stand for any eight of the fragments'
// depth, if those of the queries do. In the same way, eight neighbouring elements of values stand for columns
// of eight halves of fragments.
//
// Each subgroup works on KEYS keys of a block, and has sums of its own; those of the workgroup are added at
// the end.
//
// `attend` is written by src/ops/attention/decode_fragments.rs: its loops over fragments have to be unrolled.
// It calls the functions of this file.
//
// Starts, strides and lengths of vectors are multiples of eight elements. References of subgroups are in
// powers of two, because scores are small here: neither the scale nor the softcap is large.
//
// needs: T = f16, ROWS, BLOCK, DIM, lib/attention, lib/attention_contiguous, lib/attention_pieces,
// lib/attention_sinks, lib/fragment_elements, and lib/attention_parts_vec4s or lib/attention_fixup

const SUBGROUP: u32 = 32u;
const SUBGROUPS: u32 = 4u;
const THREADS: u32 = SUBGROUPS * SUBGROUP;
const FRAGMENT: u32 = 16u;
const KEYS: u32 = BLOCK / SUBGROUPS;

// Rows of each half of a fragment.
const HALF: u32 = 8u;
// Vectors of four in the sums of a row, and in a row of workgroup memory, with one more against bank
// conflicts.
const VEC4S: u32 = DIM / 4u;
const STRIDE: u32 = VEC4S + 1u;

const_assert SUBGROUPS == 4u && ROWS <= FRAGMENT && KEYS % FRAGMENT == 0u && DIM % 64u == 0u;

// What each subgroup has of eight rows: references and sums of weights, and vectors.
var<workgroup> sh_states: array<vec2<f32>, SUBGROUPS * HALF>;
var<workgroup> sh_sums: array<vec4<f32>, SUBGROUPS * HALF * STRIDE>;

// Eight elements of a row of the queries, 0 beyond a vector's end. Rows beyond the last are the last, and not
// written.
fn fetch_q(tile: Tile, row: u32, d: u32) -> vec4<u32> {
  if d >= head_dim() {
    return vec4<u32>();
  }
  let place = place_of(tile, min(tile.row + row, rows() - 1u));
  return q[(params.q.x + tile.batch * params.q.y + place.x * params.q.z + place.y * params.q.w + d) / 8u];
}

// Eight elements of the row of queries eight below `row`, 0 where the tile has none.
fn fetch_high_q(tile: Tile, row: u32, d: u32) -> vec4<u32> {
  if ROWS <= HALF {
    return vec4<u32>();
  }
  return fetch_q(tile, row + HALF, d);
}

// Eight elements of a key or a value. Those beyond the last are the last.
fn fetch_k(start: u32, key: u32, last: u32, stride: u32) -> vec4<u32> {
  return k[start + min(key, last) * stride];
}

fn fetch_v(start: u32, key: u32, last: u32, stride: u32) -> vec4<u32> {
  return v[start + min(key, last) * stride];
}

// Two neighbouring elements of four values, as two columns.
fn columns_of(a: u32, b: u32, c: u32, d: u32) -> Halves {
  let first = halves(vec2<u32>(a, b));
  let last = halves(vec2<u32>(c, d));
  return Halves(vec4<f16>(first.xz, last.xz), vec4<f16>(first.yw, last.yw));
}

// Scores of a row from its products with `key` and its neighbours, as Elements has them.
fn scores_of_row(tile: Tile, products: vec4<f32>, row: u32, key: u32) -> vec4<f32> {
  let place = place_of(tile, min(tile.row + row, rows() - 1u));
  let keys = key + vec4<u32>(0u, 1u, 8u, 9u);
  var x = products;
  if has(NATURAL) {
    x = scaled(products);
  }
  if has(HAS_MASK) {
    let at = mask_row(tile.batch, place.x, place.y) + min(keys, vec4<u32>(params.seq_kv - 1u));
    x = vec4<f32>(masked(x.x, at.x), masked(x.y, at.y), masked(x.z, at.z), masked(x.w, at.w));
  }
  let seen = visible(place.y, tile.real);
  let end = min(seen.y, tile.end);
  return select(x, vec4<f32>(-inf()), (keys < vec4<u32>(seen.x)) | (keys >= vec4<u32>(end)));
}

fn scores(tile: Tile, products: Elements, row: u32, key: u32) -> Elements {
  var high: vec4<f32>;
  if ROWS > HALF {
    high = scores_of_row(tile, products.high, row + HALF, key);
  }
  return Elements(scores_of_row(tile, products.low, row, key), high);
}

// Weights of scores. −∞ gives 0 and NaN gives NaN, as exponentials of the devices that this is for have it.
fn weigh(scores: Elements, unit: f32, references: vec2<f32>) -> Elements {
  var high: vec4<f32>;
  if ROWS > HALF {
    high = exp2(fma(scores.high, vec4<f32>(unit), vec4<f32>(-references.y)));
  }
  return Elements(exp2(fma(scores.low, vec4<f32>(unit), vec4<f32>(-references.x))), high);
}

// By how much sums shrink where references are raised.
fn factors(differences: vec2<f32>) -> vec2<f32> {
  var high = 1.0;
  if ROWS > HALF {
    high = weight(differences.y);
  }
  return vec2<f32>(weight(differences.x), high);
}

// Puts 16 elements of a row into workgroup memory: those of four fragments that an invocation has.
fn put_sums(at: u32, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) {
  sh_sums[at] = vec4<f32>(a.xz, b.xz);
  sh_sums[at + 1u] = vec4<f32>(c.xz, d.xz);
  sh_sums[at + 2u] = vec4<f32>(a.yw, b.yw);
  sh_sums[at + 3u] = vec4<f32>(c.yw, d.yw);
}

// Writes what the subgroups have together of the eight rows from `first` on.
fn write_parts(tile: Tile, index: u32, first: u32, group: vec3<u32>, groups: vec3<u32>) {
  for (var i = index; i < HALF * VEC4S; i += THREADS) {
    let row = i / VEC4S;
    let four = i % VEC4S;
    if tile.row + first + row >= rows() || 4u * four >= head_dim() {
      continue;
    }
    // Written out, so that what workgroup memory has is on its way together.
    let a = sh_states[row];
    let b = sh_states[HALF + row];
    let c = sh_states[2u * HALF + row];
    let d = sh_states[3u * HALF + row];
    let peak = max(max(a.x, b.x), max(c.x, d.x));
    let rescale = weights(vec4<f32>(a.x, b.x, c.x, d.x) - peak);
    let at = row * STRIDE + four;
    let sum = sh_sums[at] * rescale.x
      + sh_sums[HALF * STRIDE + at] * rescale.y
      + sh_sums[2u * HALF * STRIDE + at] * rescale.z
      + sh_sums[3u * HALF * STRIDE + at] * rescale.w;
    put_four(tile, group, groups, first + row, four, sum);
    if four == 0u {
      let total = dot(vec4<f32>(a.y, b.y, c.y, d.y), rescale);
      put_state(tile, group, groups, first + row, peak / score_unit(), total);
    }
  }
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
  let tile = tile_of(group);
  attend(tile, subgroup, lane, group, groups);
  finish(tile, subgroup * SUBGROUP + lane, group, groups);
}
