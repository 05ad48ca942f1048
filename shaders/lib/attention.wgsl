// The parameters of attention's kernels, which keys a query sees, and what a score is.
//
// Scores are kept in powers of two: a weight is exp2(score − reference). A softcap bounds them by a hyperbolic tangent
// written with an exponential, whose absolute error is what counts here.
//
// needs: T, the bindings `mask` and `lengths`

// A score that no real one is below, for keys that are not seen. Not −∞, whose differences are NaN.
const UNSEEN: f32 = -3.4028234e38;
// What a reference starts at, and the least real score: far from UNSEEN, and from any score of finite numbers.
const FLOOR: f32 = -1.0e38;

const LOG2_E: f32 = 1.4426950408889634;
const LN_2: f32 = 0.6931471805599453;

// Bits of `options`; from the eighth on, it has the number of pieces into which the keys are split.
const CAUSAL: u32 = 1u;
const HAS_MASK: u32 = 2u;
const HAS_LENGTHS: u32 = 4u;
const HAS_LSE: u32 = 8u;

struct Params {
  heads: u32,
  group: u32,
  seq_q: u32,
  seq_kv: u32,
  head_dim: u32,
  tiles: u32,
  options: u32,
  // How many keys back a query sees; 2³¹ for all.
  window: u32,
  // Without a softcap c: the scale in powers of two. With one: the scale in units of c/2, in powers of two.
  scale: f32,
  // c in powers of two, or 0.
  softcap: f32,
  lengths_offset: u32,
  lse_offset: u32,
  // Start and strides by batch, head and token.
  q: vec4<u32>,
  k: vec4<u32>,
  v: vec4<u32>,
  o: vec4<u32>,
  mask: vec4<u32>,
}

fn has(option: u32) -> bool {
  return (params.options & option) != 0u;
}

// Which of the tiles of queries a workgroup works on, and of which head, those of all batches counted on.
//
// With a causal mask, the last queries have the most to do. They come first in a band of heads, so that the workgroups
// that are left at the end are short ones. A band is many times what a large device works on at a time, and its keys and
// values are about as large as its cache.
fn tile_and_head(flat: u32, tiles: u32) -> vec2<u32> {
  const QUERIES = 131072u;
  let heads = params.tiles / tiles;
  let band = select(1u, clamp(QUERIES / params.seq_q, 1u, heads), has(CAUSAL));
  let before = flat / (band * tiles) * band;
  let width = min(band, heads - before);
  let inner = flat - before * tiles;
  return vec2<u32>(tiles - 1u - inner / width, before + inner % width);
}

// Keys of this batch that are real.
fn real_keys(batch: u32) -> u32 {
  if has(HAS_LENGTHS) {
    return min(lengths[params.lengths_offset + batch], params.seq_kv);
  }
  return params.seq_kv;
}

// The first key that a query sees, its mask aside, and the first after it that it doesn't.
fn visible(query: u32, real: u32) -> vec2<u32> {
  // The query's position, plus 1 and seq_q, which keep it positive.
  let position = query + params.seq_kv + 1u;
  let last = select(real, min(real, position - min(position, params.seq_q)), has(CAUSAL));
  let first = position - min(position, params.seq_q + params.window);
  return vec2<u32>(min(first, last), last);
}

// Where a query's row of the mask begins.
fn mask_row(batch: u32, head: u32, query: u32) -> u32 {
  return params.mask.x + batch * params.mask.y + head * params.mask.z + query * params.mask.w;
}

// 2^x, and 0 where that is no normal number.
fn weights(x: vec4<f32>) -> vec4<f32> {
  const LEAST = vec4<f32>(-126.0);
  return select(exp2(max(x, LEAST)), vec4<f32>(), x < LEAST);
}

fn weight(x: f32) -> f32 {
  return select(exp2(max(x, -126.0)), 0.0, x < -126.0);
}

// From sums of products to scores without a mask.
fn scaled(products: vec4<f32>) -> vec4<f32> {
  let x = products * params.scale;
  if params.softcap == 0.0 {
    return x;
  }
  return params.softcap * (1.0 - 2.0 / (exp2(clamp(x, vec4<f32>(-126.0), vec4<f32>(126.0))) + 1.0));
}

// The score of a key that is seen, its mask at `at`.
fn masked(score: f32, at: u32) -> f32 {
  const MINUS_INF_BITS = 0xff800000u;
  let m = f32(mask[at]);
  return select(max(score + m * LOG2_E, FLOOR), UNSEEN, bitcast<u32>(m) == MINUS_INF_BITS);
}

// The logarithm of a sum of weights relative to a reference; −∞ for none.
fn log_sum(reference: f32, total: f32) -> f32 {
  return select((reference + log2(total)) * LN_2, -inf(), total == 0.0);
}
