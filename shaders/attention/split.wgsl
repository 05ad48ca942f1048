// Attention of few queries: a part of softmax(cap(scale · Q·Kᵀ) + mask) · V for each piece of the keys, which
// attention/combine puts together.
//
// A workgroup takes one piece for ROWS rows, a row being a query of one of the heads that share keys and values, so that
// these are read once for all of them. A key's vector is spread over the lanes of a slot; each slot walks its own keys,
// TURNS at a time, with a maximum and a sum of its own (Dao et al., "Flash-Decoding", 2023). While keys are multiplied,
// the next are on their way into registers.
//
// needs: T, ROWS, HALF_Q, HALF_KV, lib/attention, and lib/attention_wide or lib/attention_narrow

const THREADS: u32 = 128u;
const TURNS: u32 = min(8u, 16u / ROWS);
// Fewest lanes of a slot, and so most slots.
const LEAST_LANES: u32 = 4u;
const MOST_SLOTS: u32 = THREADS / LEAST_LANES;
// Numbers of a lane.
const WIDTH: u32 = 4u * UNIT_KV;

const_assert ROWS * TURNS <= 16u && TURNS >= 1u;

@group(0) @binding(0) var<storage, read> q: array<Words>;
@group(0) @binding(1) var<storage, read> k: array<Words>;
@group(0) @binding(2) var<storage, read> v: array<Words>;
@group(0) @binding(3) var<storage, read> mask: array<T>;
@group(0) @binding(4) var<storage, read> lengths: array<u32>;
@group(0) @binding(5) var<storage, read_write> parts: array<f32>;

// Products of each lane, by row, slot, turn and lane; at the end, vectors of each slot.
var<workgroup> sh_parts: array<f32, ROWS * TURNS * (THREADS + MOST_SLOTS)>;
// Scores by row, slot and turn; at the end, maxima and sums of each slot.
var<workgroup> sh_scores: array<f32, ROWS * TURNS * MOST_SLOTS>;

const_assert ROWS * TURNS * (THREADS + MOST_SLOTS) >= THREADS * WIDTH;
const_assert ROWS * TURNS >= 2u;

struct Tile {
  batch: u32,
  // The first of the heads that share keys and values, and the first of the rows.
  head: u32,
  row: u32,
  split: u32,
  k: u32,
  v: u32,
  real: u32,
}

// An invocation's lane in its slot, lanes of a slot, its slot, and slots.
struct Place {
  lane: u32,
  lanes: u32,
  slot: u32,
  slots: u32,
}

// Lanes of a slot, the same for the whole workgroup.
fn lanes_of_slot() -> u32 {
  var lanes = LEAST_LANES;
  while lanes * WIDTH < params.head_dim {
    lanes *= 2u;
  }
  return lanes;
}

fn splits() -> u32 {
  return params.options >> 8u;
}

fn rows() -> u32 {
  return params.seq_q * params.group;
}

fn tile_of(flat: u32) -> Tile {
  let chunks = (rows() + ROWS - 1u) / ROWS;
  let kv_heads = params.heads / params.group;
  let chunk = flat / splits() % chunks;
  let kv_head = flat / (splits() * chunks) % kv_heads;
  let batch = flat / (splits() * chunks * kv_heads);
  return Tile(
    batch,
    kv_head * params.group,
    chunk * ROWS,
    flat % splits(),
    params.k.x + batch * params.k.y + kv_head * params.k.z,
    params.v.x + batch * params.v.y + kv_head * params.v.z,
    real_keys(batch),
  );
}

// The head and the query of a row; those beyond the last are the last, and not written.
fn head_and_query(tile: Tile, r: u32) -> vec2<u32> {
  let row = min(tile.row + r, rows() - 1u);
  return vec2<u32>(tile.head + row % params.group, row / params.group);
}

// An invocation's numbers of TURNS keys from `key` on; of those from `end` on, the last before it.
fn fetch_keys(tile: Tile, place: Place, key: u32, end: u32) -> array<Fetched, TURNS> {
  var fetched: array<Fetched, TURNS>;
  let d = place.lane * WIDTH;
  if d < params.head_dim {
    for (var t = 0u; t < TURNS; t++) {
      let token = min(key + t * place.slots + place.slot, end - 1u);
      fetched[t] = fetch_k(tile.k + token * params.k.w + d, params.head_dim - d);
    }
  }
  return fetched;
}

fn fetch_values(tile: Tile, place: Place, key: u32, end: u32) -> array<Fetched, TURNS> {
  var fetched: array<Fetched, TURNS>;
  let d = place.lane * WIDTH;
  if d < params.head_dim {
    for (var t = 0u; t < TURNS; t++) {
      let token = min(key + t * place.slots + place.slot, end - 1u);
      fetched[t] = fetch_v(tile.v + token * params.v.w + d, params.head_dim - d);
    }
  }
  return fetched;
}

// The score of a row and a key, from the products of the lanes.
fn score(tile: Tile, r: u32, key: u32, end: u32, product: f32) -> f32 {
  let place = head_and_query(tile, r);
  let seen = visible(place.y, tile.real);
  if key < seen.x || key >= min(seen.y, end) {
    return UNSEEN;
  }
  let s = scaled(vec4<f32>(product)).x;
  if has(HAS_MASK) {
    return masked(s, mask_row(tile.batch, place.x, place.y) + key);
  }
  return s;
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
  let tile = tile_of(flat);
  let lanes = lanes_of_slot();
  let slots = THREADS / lanes;
  let place = Place(index % lanes, lanes, index / lanes, slots);

  // This piece of the keys that some row sees.
  let all_begin = visible(head_and_query(tile, 0u).y, tile.real).x;
  let all_end = max(all_begin, visible(head_and_query(tile, ROWS - 1u).y, tile.real).y);
  let length = ((all_end - all_begin + splits() - 1u) / splits() + slots - 1u) / slots * slots;
  let begin = min(all_end, all_begin + tile.split * length);
  let end = min(all_end, begin + length);

  var queries: array<vec4<f32>, ROWS * UNIT_KV>;
  let d = place.lane * WIDTH;
  for (var r = 0u; r < ROWS; r++) {
    let source = head_and_query(tile, r);
    let base = params.q.x + tile.batch * params.q.y + source.x * params.q.z + source.y * params.q.w;
    for (var u = 0u; u < UNIT_KV; u += UNIT_Q) {
      if d + 4u * u < params.head_dim {
        let numbers = load_q(base + d + 4u * u, params.head_dim - d - 4u * u);
        for (var i = 0u; i < UNIT_Q; i++) {
          queries[r * UNIT_KV + u + i] = numbers[i];
        }
      }
    }
  }

  var out: array<vec4<f32>, ROWS * UNIT_KV>;
  var peaks: array<f32, ROWS>;
  var totals: array<f32, ROWS>;
  for (var r = 0u; r < ROWS; r++) {
    peaks[r] = FLOOR;
  }

  let step = TURNS * slots;
  let steps = (end - begin + step - 1u) / step;
  var keys: array<Fetched, TURNS>;
  var values: array<Fetched, TURNS>;
  if steps > 0u {
    keys = fetch_keys(tile, place, begin, end);
    values = fetch_values(tile, place, begin, end);
  }
  for (var s = 0u; s < steps; s++) {
    let key = begin + s * step;
    for (var t = 0u; t < TURNS; t++) {
      let numbers = numbers_kv(keys[t]);
      for (var r = 0u; r < ROWS; r++) {
        var product = 0.0;
        for (var u = 0u; u < UNIT_KV; u++) {
          product += dot(numbers[u], queries[r * UNIT_KV + u]);
        }
        sh_parts[((r * place.slots + place.slot) * TURNS + t) * (place.lanes + 1u) + place.lane] = product;
      }
    }
    keys = fetch_keys(tile, place, key + step, end);
    workgroupBarrier();
    for (var t = place.lane; t < TURNS; t += place.lanes) {
      for (var r = 0u; r < ROWS; r++) {
        let at = (r * place.slots + place.slot) * TURNS + t;
        var product = 0.0;
        for (var lane = 0u; lane < place.lanes; lane++) {
          product += sh_parts[at * (place.lanes + 1u) + lane];
        }
        sh_scores[at] = score(tile, r, key + t * place.slots + place.slot, end, product);
      }
    }
    workgroupBarrier();
    var p: array<f32, ROWS * TURNS>;
    for (var r = 0u; r < ROWS; r++) {
      var peak = peaks[r];
      for (var t = 0u; t < TURNS; t++) {
        p[r * TURNS + t] = sh_scores[(r * place.slots + place.slot) * TURNS + t];
        peak = max(peak, p[r * TURNS + t]);
      }
      let rescale = weight(peaks[r] - peak);
      peaks[r] = peak;
      totals[r] *= rescale;
      for (var u = 0u; u < UNIT_KV; u++) {
        out[r * UNIT_KV + u] *= rescale;
      }
      for (var t = 0u; t < TURNS; t++) {
        p[r * TURNS + t] = weight(p[r * TURNS + t] - peak);
        totals[r] += p[r * TURNS + t];
      }
    }
    for (var t = 0u; t < TURNS; t++) {
      let numbers = numbers_kv(values[t]);
      for (var r = 0u; r < ROWS; r++) {
        for (var u = 0u; u < UNIT_KV; u++) {
          out[r * UNIT_KV + u] += p[r * TURNS + t] * numbers[u];
        }
      }
    }
    values = fetch_values(tile, place, key + step, end);
  }

  // The slots' parts, row by row.
  for (var r = 0u; r < ROWS; r++) {
    workgroupBarrier();
    if place.lane == 0u {
      sh_scores[place.slot] = peaks[r];
    }
    workgroupBarrier();
    var peak = FLOOR;
    for (var slot = 0u; slot < place.slots; slot++) {
      peak = max(peak, sh_scores[slot]);
    }
    let rescale = weight(peaks[r] - peak);
    for (var u = 0u; u < UNIT_KV; u++) {
      for (var i = 0u; i < 4u; i++) {
        sh_parts[index * WIDTH + 4u * u + i] = out[r * UNIT_KV + u][i] * rescale;
      }
    }
    if place.lane == 0u {
      sh_scores[place.slots + place.slot] = totals[r] * rescale;
    }
    workgroupBarrier();
    if tile.row + r < rows() {
      let source = head_and_query(tile, r);
      let row = (tile.batch * params.heads + source.x) * params.seq_q + source.y;
      let base = (row * splits() + tile.split) * (params.head_dim + 2u);
      for (var i = index; i < params.head_dim; i += THREADS) {
        var sum = 0.0;
        for (var slot = 0u; slot < place.slots; slot++) {
          sum += sh_parts[slot * place.lanes * WIDTH + i];
        }
        parts[base + 2u + i] = sum;
      }
      if index == 0u {
        var total = 0.0;
        for (var slot = 0u; slot < place.slots; slot++) {
          total += sh_scores[place.slots + slot];
        }
        parts[base] = peak;
        parts[base + 1u] = total;
      }
    }
  }
}
