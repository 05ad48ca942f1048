// O from the parts that attention/split, attention/decode or attention/flash made of it, each a reference, a sum, the head's
// sink, a number that nobody reads, and a vector. A workgroup makes a row: its row groups of invocations share the parts,
// and each invocation has four elements.
//
// needs: T, M = T or u32, THREADS, LANES, HALF_Q, HALF_KV, PAGED, lib/attention, lib/attention_narrow or
// lib/attention_q8_0, lib/attention_output, lib/attention_seen

const ROW_GROUPS: u32 = THREADS / LANES;

// What each row group has: its reference and sum, and its vector.
var<workgroup> sh_states: array<vec2<f32>, ROW_GROUPS>;
var<workgroup> sh_vectors: array<vec4<f32>, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let row = flat_group(group, groups);
  // `tiles` counts rows here.
  if row >= params.tiles {
    return;
  }
  let splits = pieces();
  let vec4s = (v_head_dim() + 3u) / 4u;
  let length = vec4s + 1u;
  let lane = index % LANES;
  let row_group = index / LANES;

  // Two parts at a time, so that they are on their way together.
  let vector = row * splits * length + 1u + min(lane, vec4s - 1u);
  let state = row * splits * length;
  let iterations = (splits + 2u * ROW_GROUPS - 1u) / (2u * ROW_GROUPS);
  let unit = score_unit();
  var peak = LOWEST;
  var total = 0.0;
  var sum = vec4<f32>();
  for (var iteration = 0u; iteration < iterations; iteration++) {
    let a = 2u * iteration * ROW_GROUPS + row_group;
    let b = a + ROW_GROUPS;
    let a_at = min(a, splits - 1u) * length;
    let b_at = min(b, splits - 1u) * length;
    let a_state = select(vec2<f32>(LOWEST, 0.0), parts[state + a_at].xy, a < splits);
    let a_vector = select(vec4<f32>(), parts[vector + a_at], a < splits);
    let b_state = select(vec2<f32>(LOWEST, 0.0), parts[state + b_at].xy, b < splits);
    let b_vector = select(vec4<f32>(), parts[vector + b_at], b < splits);
    let raised = max(peak, max(a_state.x, b_state.x));
    let weights = weights((vec4<f32>(peak, a_state.x, b_state.x, raised) - raised) * unit);
    total = total * weights.x + a_state.y * weights.y + b_state.y * weights.z;
    sum = sum * weights.x + a_vector * weights.y + b_vector * weights.z;
    peak = raised;
  }
  let query = row % params.seq_q;
  let head = row / params.seq_q % params.heads;
  let batch = row / (params.seq_q * params.heads);
  // On their way while row groups wait for each other.
  let sink = parts[state].z;
  let real = real_keys(batch);
  if lane == 0u {
    sh_states[row_group] = vec2<f32>(peak, total);
  }
  sh_vectors[index] = sum;
  workgroupBarrier();
  if index >= vec4s {
    return;
  }
  for (var i = 0u; i < ROW_GROUPS; i++) {
    peak = max(peak, sh_states[i].x);
  }
  total = 0.0;
  sum = vec4<f32>();
  for (var i = 0u; i < ROW_GROUPS; i++) {
    let rescale = weight((sh_states[i].x - peak) * unit);
    total += sh_states[i].y * rescale;
    sum += sh_vectors[i * LANES + index] * rescale;
  }
  let d = 4u * index;
  let at = params.o.x + batch * params.o.y + head * params.o.z + query * params.o.w + d;
  let below = denominator(peak, total, sink);
  var result = sum * below.factor;
  if !is_finite(result) && is_defined(below.total) {
    result = mean_of_seen(batch, real, head, query, d, sink, result);
  }
  write_output(at, v_head_dim() - d, result);
  if has(HAS_LSE) && index == 0u {
    lse[params.lse_offset + row] = below.log_sum;
  }
}
