// Outputs whose sums of weighted values aren't finite, made again of the keys alone that a query sees.
//
// The kernels multiply the values of all keys of a tile by weights, which are 0 where a query doesn't see a
// key. Values that aren't finite make NaN of that. This is slow: it is for what holds such values.
//
// needs: lib/attention, lib/attention_places, four_q, four_k and four_v of one of attention's readers

fn are_finite(x: vec4<f32>) -> vec4<bool> {
  return (bitcast<vec4<u32>>(x) & vec4<u32>(INF_BITS)) != vec4<u32>(INF_BITS);
}

fn is_finite(x: vec4<f32>) -> bool {
  return all(are_finite(x));
}

// Four elements of an output vector, from `d` on, of which some aren't finite in `result`: where values that
// the query sees aren't finite, these decide, however small their weights; elsewhere the mean by weights.
//
// A driver may end the loops of an invocation early. Then `result` stays, rather than a mean of some keys.
//
// `real` is what `real_keys` says of the batch. Kernels that end soon after their last keys know it long before: where it is
// loaded for this alone, drivers load it whether or not an output needs it, and every output waits.
fn mean_of_seen(
  batch: u32,
  real: u32,
  head: u32,
  query: u32,
  d: u32,
  sink: f32,
  result: vec4<f32>,
) -> vec4<f32> {
  let seen = visible(query, real);
  let row = mask_row(batch, head, query);
  let start = params.v.x + sequence_start(batch, params.v) + head / params.group * params.v.z;
  var unbounded = vec4<f32>();
  var key = seen.x;
  for (; key < seen.y; key++) {
    let value = four_of_value(start, batch, key, d);
    if !is_finite(value) && !is_hidden(row, key) {
      unbounded += select(value, vec4<f32>(), are_finite(value));
    }
  }
  let is_decided = select(vec4<bool>(true), are_finite(result), are_finite(unbounded));
  let decided = select(unbounded, result, are_finite(unbounded));
  if all(is_decided) || key < seen.y {
    return decided;
  }

  var peak = LOWEST;
  var total = 0.0;
  var sum = vec4<f32>();
  key = seen.x;
  for (; key < seen.y; key++) {
    let score = score_of(batch, head, query, key);
    let raised = max(peak, score);
    let rescale = weight((peak - raised) * score_unit());
    let w = weight((score - raised) * score_unit());
    total = total * rescale + w;
    sum *= rescale;
    if w != 0.0 {
      sum += w * four_of_value(start, batch, key, d);
    }
    peak = raised;
  }
  if key < seen.y {
    return decided;
  }
  return select(sum * denominator(peak, total, sink).factor, decided, is_decided);
}

fn four_of_value(start: u32, batch: u32, key: u32, d: u32) -> vec4<f32> {
  let at = key_offset(batch, key, params.v);
  var result = vec4<f32>();
  if at != OUTSIDE {
    result = four_v(start + at, d);
  }
  return result;
}

fn is_hidden(row: u32, key: u32) -> bool {
  if has(HAS_MASK) {
    return is_minus_inf(f32(mask[row + key]));
  }
  return false;
}

// The sum of sixteen products of a query's and a key's elements from `d` on, or of as many as there are.
// Written out, as drivers may count the iterations of loops.
fn products_of_16(q_start: u32, k_start: u32, d: u32) -> f32 {
  return products_of_4(q_start, k_start, d) + products_of_4(q_start, k_start, d + 4u)
    + products_of_4(q_start, k_start, d + 8u) + products_of_4(q_start, k_start, d + 12u);
}

fn products_of_4(q_start: u32, k_start: u32, d: u32) -> f32 {
  if d >= head_dim() {
    return 0.0;
  }
  return dot(four_q(q_start + d, head_dim() - d), four_k(k_start, d));
}

// The score of a key that is seen, its mask aside.
fn score_of(batch: u32, head: u32, query: u32, key: u32) -> f32 {
  let q_start = params.q.x + batch * params.q.y + head * params.q.z + query * params.q.w;
  let at = key_offset(batch, key, params.k);
  let k_start = params.k.x + sequence_start(batch, params.k) + head / params.group * params.k.z + at;
  var product = 0.0;
  for (var d = select(0u, head_dim(), at == OUTSIDE); d < head_dim(); d += 32u) {
    product += products_of_16(q_start, k_start, d) + products_of_16(q_start, k_start, d + 16u);
  }
  if !has(NATURAL) {
    return product;
  }
  let score = scaled(vec4<f32>(product)).x;
  if has(HAS_MASK) {
    return masked(score, mask_row(batch, head, query) + key);
  }
  return score;
}
