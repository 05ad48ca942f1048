// O = softmax(scale · Q·Kᵀ + mask) · V, block by block of keys, without ever holding the scores of a row.
//
// A workgroup works on 32 queries of one head. For each 32 keys it forms the scores, keeps the running maximum and sum of
// each query, rescales what it has of the output, and adds the block's part (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018; Dao et al., "FlashAttention", 2022). Vectors are walked in chunks of 32 numbers.
//
// needs: T, CHUNKS, CAUSAL, HAS_MASK, HAS_LENGTHS

// Queries, keys, and numbers of a chunk; and eight invocations for each query, each with four keys or numbers.
const BLOCK: u32 = 32u;
const LANES: u32 = 8u;

// A score that no real one is below, for keys that are not seen. Not −∞, whose differences are NaN.
const UNSEEN: f32 = -3.4028234e38;

struct Params {
  heads: u32,
  group: u32,
  seq_q: u32,
  seq_kv: u32,
  head_dim: u32,
  blocks_q: u32,
  tiles: u32,
  scale: f32,
  // Start and strides by batch, head and token.
  q: vec4<u32>,
  k: vec4<u32>,
  v: vec4<u32>,
  o: vec4<u32>,
  mask: vec4<u32>,
  lengths_offset: u32,
}

@group(0) @binding(0) var<storage, read> q: array<T>;
@group(0) @binding(1) var<storage, read> k: array<T>;
@group(0) @binding(2) var<storage, read> v: array<T>;
@group(0) @binding(3) var<storage, read> mask: array<T>;
@group(0) @binding(4) var<storage, read> lengths: array<u32>;
@group(0) @binding(5) var<storage, read_write> o: array<T>;

// Queries by row; keys by number, so that four keys are one vector; then values by key.
var<workgroup> sh_q: array<f32, BLOCK * (BLOCK + 1u)>;
var<workgroup> sh_kv: array<vec4<f32>, BLOCK * (LANES + 1u)>;
var<workgroup> sh_p: array<vec4<f32>, BLOCK * (LANES + 1u)>;
var<workgroup> sh_row: array<f32, BLOCK * LANES>;

// Keys of this batch that are real.
fn real_keys(batch: u32) -> u32 {
  if HAS_LENGTHS == 1u {
    return min(lengths[params.lengths_offset + batch], params.seq_kv);
  }
  return params.seq_kv;
}

// Keys that a query can see, counted from the first.
fn visible(query: u32, real: u32) -> u32 {
  if CAUSAL == 0u {
    return real;
  }
  // query + seq_kv − seq_q + 1, and none where that is not positive.
  let end = query + params.seq_kv + 1u;
  return min(real, max(end, params.seq_q) - params.seq_q);
}

fn load_q(base: u32, query: u32, d: u32) -> f32 {
  if query >= params.seq_q || d >= params.head_dim {
    return 0.0;
  }
  return f32(q[base + query * params.q.w + d]);
}

fn load_k(base: u32, key: u32, d: u32) -> f32 {
  if key >= params.seq_kv || d >= params.head_dim {
    return 0.0;
  }
  return f32(k[base + key * params.k.w + d]);
}

fn load_v(base: u32, key: u32, d: u32) -> f32 {
  if key >= params.seq_kv || d >= params.head_dim {
    return 0.0;
  }
  return f32(v[base + key * params.v.w + d]);
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let flat = flat_group(group, groups);
  if flat >= params.tiles {
    return;
  }
  let first_query = (flat % params.blocks_q) * BLOCK;
  let head = (flat / params.blocks_q) % params.heads;
  let batch = flat / (params.blocks_q * params.heads);
  let kv_head = head / params.group;
  let q_base = params.q.x + batch * params.q.y + head * params.q.z;
  let k_base = params.k.x + batch * params.k.y + kv_head * params.k.z;
  let v_base = params.v.x + batch * params.v.y + kv_head * params.v.z;

  let row = index / LANES;
  let lane = index % LANES;
  let query = first_query + row;
  let real = real_keys(batch);
  let seen = visible(query, real);
  let mask_base = params.mask.x + batch * params.mask.y + head * params.mask.z + query * params.mask.w;

  var out: array<vec4<f32>, CHUNKS>;
  var peak = UNSEEN;
  var total = 0.0;

  // Keys past what the last query sees are past what any sees.
  let end = visible(first_query + BLOCK - 1u, real);
  for (var first_key = 0u; first_key < end; first_key += BLOCK) {
    var score = vec4<f32>();
    for (var chunk = 0u; chunk < CHUNKS; chunk++) {
      let d0 = chunk * BLOCK;
      workgroupBarrier();
      for (var i = index; i < BLOCK * BLOCK; i += 256u) {
        sh_q[(i / BLOCK) * (BLOCK + 1u) + i % BLOCK] = load_q(q_base, first_query + i / BLOCK, d0 + i % BLOCK);
      }
      let d = d0 + index % BLOCK;
      let key = first_key + (index / BLOCK) * 4u;
      sh_kv[(index % BLOCK) * (LANES + 1u) + index / BLOCK] = vec4<f32>(
        load_k(k_base, key, d),
        load_k(k_base, key + 1u, d),
        load_k(k_base, key + 2u, d),
        load_k(k_base, key + 3u, d),
      );
      workgroupBarrier();
      for (var i = 0u; i < BLOCK; i++) {
        score += sh_q[row * (BLOCK + 1u) + i] * sh_kv[i * (LANES + 1u) + lane];
      }
    }

    // The four scores of this invocation, and which of them count.
    score *= params.scale;
    var known = vec4<bool>();
    for (var i = 0u; i < 4u; i++) {
      let key = first_key + lane * 4u + i;
      if key < seen && query < params.seq_q {
        known[i] = true;
        if HAS_MASK == 1u {
          let m = f32(mask[mask_base + key]);
          known[i] = !(is_inf(m) && is_negative(m));
          score[i] += m;
        }
      }
    }
    score = select(vec4<f32>(UNSEEN), score, known);
    sh_row[index] = max(max(score.x, score.y), max(score.z, score.w));
    workgroupBarrier();
    var block_peak = UNSEEN;
    for (var i = 0u; i < LANES; i++) {
      block_peak = max(block_peak, sh_row[row * LANES + i]);
    }
    let new_peak = max(peak, block_peak);
    let p = select(vec4<f32>(), exp(score - new_peak), known);
    let rescale = exp(peak - new_peak);
    sh_p[row * (LANES + 1u) + lane] = p;
    workgroupBarrier();
    var block_total = 0.0;
    for (var i = 0u; i < LANES; i++) {
      block_total += dot(sh_p[row * (LANES + 1u) + i], vec4<f32>(1.0));
    }
    total = total * rescale + block_total;
    peak = new_peak;

    for (var chunk = 0u; chunk < CHUNKS; chunk++) {
      workgroupBarrier();
      let key = first_key + index / LANES;
      let d = chunk * BLOCK + lane * 4u;
      sh_kv[(index / LANES) * (LANES + 1u) + lane] = vec4<f32>(
        load_v(v_base, key, d),
        load_v(v_base, key, d + 1u),
        load_v(v_base, key, d + 2u),
        load_v(v_base, key, d + 3u),
      );
      workgroupBarrier();
      var sum = out[chunk] * rescale;
      for (var i = 0u; i < LANES; i++) {
        let w = sh_p[row * (LANES + 1u) + i];
        sum += w.x * sh_kv[(i * 4u) * (LANES + 1u) + lane];
        sum += w.y * sh_kv[(i * 4u + 1u) * (LANES + 1u) + lane];
        sum += w.z * sh_kv[(i * 4u + 2u) * (LANES + 1u) + lane];
        sum += w.w * sh_kv[(i * 4u + 3u) * (LANES + 1u) + lane];
      }
      out[chunk] = sum;
    }
  }

  if query >= params.seq_q {
    return;
  }
  let o_base = params.o.x + batch * params.o.y + head * params.o.z + query * params.o.w;
  for (var chunk = 0u; chunk < CHUNKS; chunk++) {
    // A query that sees no key has a total of 0 and gives zeros.
    let result = select(out[chunk] / total, vec4<f32>(), total == 0.0);
    for (var i = 0u; i < 4u; i++) {
      let d = chunk * BLOCK + lane * 4u + i;
      if d < params.head_dim {
        o[o_base + d] = T(result[i]);
      }
    }
  }
}
