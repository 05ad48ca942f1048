// The parameters of attention's kernels, which keys a query sees, and what a score is.
//
// A weight is exp2((score − reference) · score_unit()): products are scores as they are where a positive
// scale is all that is done to them, so that the scale comes with the change to powers of two. Otherwise
// scores are natural, and never in powers of two, in which the largest f32 would not fit. The difference
// comes first, because it is exact where scores are close.
//
// A key that a query doesn't see has a score of −∞, like a product that overflows, and a weight of 0.
// References are finite, unless a score is +∞. That and NaN make the weight of their key NaN (or +∞, as some
// devices' exp2 has it), and the row's sum of weights no finite number, which it never is otherwise. For
// this, nothing between a score and its weight may take NaN for a number: no max, no clamp, and no comparison
// but by bits, as compilers may assume that there is no NaN.
//
// needs: T, lib/special, the bindings `mask` and `lengths`

// What a reference starts at: the least finite number.
const LOWEST: f32 = -0x1.fffffep+127f;

const LOG2_E: f32 = 1.4426950408889634;
const LN_2: f32 = 0.6931471805599453;

// Bits of `options`. Above them, it has 16 of the number of pieces into which the keys are split (for attention/flash, of
// the blocks of keys in a piece), and eight of the first sink's place in its binding.
const CAUSAL: u32 = 1u;
const HAS_MASK: u32 = 2u;
const HAS_LENGTHS: u32 = 4u;
const HAS_LSE: u32 = 8u;
// Products are scaled, bounded and masked to be scores.
const NATURAL: u32 = 16u;
// Where positions don't count from the last key: the first query is at the first key, or the last query at
// the last real key.
const TOP_LEFT: u32 = 32u;
const BY_LENGTHS: u32 = 64u;
const HAS_SINKS: u32 = 128u;

fn has(option: u32) -> bool {
  return (params.options & option) != 0u;
}

fn pieces() -> u32 {
  return (params.options >> 8u) & 0xffffu;
}

// Elements of a vector of Q and K.
fn head_dim() -> u32 {
  return params.head_dims & 0xffffu;
}

// Elements of a vector of V and O.
fn v_head_dim() -> u32 {
  return params.head_dims >> 16u;
}

// Which of the tiles of queries a workgroup works on, and of which head, those of all batches counted on.
//
// With a causal mask, the last queries have the most to do. They come first in a band of heads, so that the
// workgroups that are left at the end are short ones. A band is many times what a large device works on at a
// time, and its keys and values are about as large as its cache.
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
  let behind = select(select(params.seq_kv, real, has(BY_LENGTHS)), params.seq_q, has(TOP_LEFT));
  let position = query + behind + 1u;
  let last = select(real, min(real, position - min(position, params.seq_q)), has(CAUSAL));
  let first = position - min(position, params.seq_q + params.window);
  return vec2<u32>(min(first, last), last);
}

// Where a query's row of the mask begins.
fn mask_row(batch: u32, head: u32, query: u32) -> u32 {
  return params.mask.x + batch * params.mask.y + head * params.mask.z + query * params.mask.w;
}

// What a difference of scores is multiplied by to be one of powers of two.
fn score_unit() -> f32 {
  return select(params.scale, LOG2_E, has(NATURAL));
}

// Whether 2^x is no normal number. By bits: x below −126, −∞ included, but no NaN.
const BELOW_LEAST: u32 = 0xc2fc0001u;
const RANGE_BELOW: u32 = 0xff800001u - BELOW_LEAST;

// 2^x, 0 where that is no normal number, and NaN or +∞ of NaN.
fn weights(x: vec4<f32>) -> vec4<f32> {
  return select(exp2(x), vec4<f32>(), (bitcast<vec4<u32>>(x) - BELOW_LEAST) < vec4<u32>(RANGE_BELOW));
}

fn weight(x: f32) -> f32 {
  return select(exp2(x), 0.0, (bitcast<u32>(x) - BELOW_LEAST) < RANGE_BELOW);
}

// The natural scores without a mask. A softcap c makes c · tanh(s / c) of a score s, with an exponential,
// whose absolute error is what counts here.
fn scaled(products: vec4<f32>) -> vec4<f32> {
  let s = products * params.scale;
  if params.softcap == 0.0 {
    return s;
  }
  // Both in quarters, so that the inverse of the largest softcap is a normal number: devices divide by
  // multiplying with it.
  let x = (s * 0.25) / (params.softcap * 0.25) * (2.0 * LOG2_E);
  let capped = params.softcap * (1.0 - 2.0 / (exp2(clamp(x, vec4<f32>(-126.0), vec4<f32>(126.0))) + 1.0));
  return select(capped, s, (bitcast<vec4<u32>>(s) & vec4<u32>(0x7fffffffu)) > vec4<u32>(INF_BITS));
}

const INF_BITS: u32 = 0x7f800000u;

fn is_minus_inf(x: f32) -> bool {
  return bitcast<u32>(x) == (INF_BITS | 0x80000000u);
}

// The score of a key that is seen, its mask at `at`.
fn masked(score: f32, at: u32) -> f32 {
  let m = f32(mask[at]);
  return select(score + m, m, is_minus_inf(m));
}

// Whether no score of a row with this sum of weights was NaN or +∞.
fn is_defined(total: f32) -> bool {
  return (bitcast<u32>(total) & INF_BITS) != INF_BITS;
}

// What sums of weighted values are multiplied by: 0 for a query that sees no key.
fn inverse_of(total: f32) -> f32 {
  return select(nan(), select(1.0 / total, 0.0, total == 0.0), is_defined(total));
}

// The denominator of a row's softmax.
struct Denominator {
  // The sum of weights with that of the sink.
  total: f32,
  // What sums of weighted values are multiplied by: 0 for a row of no weights.
  factor: f32,
  // The logarithm of the sum of the exponentials of the scores and of the sink; −∞ for none.
  log_sum: f32,
}

// The denominator of a row whose keys have this sum of weights relative to a reference. A sink is a natural score
// without a value, or −∞ for none. Its difference to the reference is one of natural scores, because products in
// its unit may not have room for it.
fn denominator(reference: f32, keys: f32, sink: f32) -> Denominator {
  let top = select(reference * select(params.scale * LN_2, 1.0, has(NATURAL)), LOWEST, keys == 0.0);
  let raised = max(top, sink);
  let kept = weight((top - raised) * LOG2_E);
  let total = keys * kept + weight((sink - raised) * LOG2_E);
  let value = select(raised + log2(total) * LN_2, -inf(), total == 0.0);
  return Denominator(total, kept * inverse_of(total), select(nan(), value, is_defined(total)));
}
