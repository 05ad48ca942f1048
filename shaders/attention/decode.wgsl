// Attention of few queries like attention/split, for devices whose subgroups have SUBGROUP invocations:
// softmax(cap(scale · Q·Kᵀ) + mask) · V where the keys are in one piece, else a part of it for each piece, which
// attention/combine or the last workgroup puts together.
//
// A key's vector is spread over the LANES of a slot, which works on four keys at a time, for all ROWS rows
// that share them. Lanes exchange products, scores and weights by shuffles: nothing waits for a workgroup
// before its end. While keys are multiplied, the next are on their way into registers, each with a name of
// its own, as drivers keep arrays elsewhere.
//
// Operands are read 16 bytes at a time, or keys and values are blocks of Q8_0.
//
// needs: T, M = T or u32, SUBGROUP, SUBGROUPS, LANES, HALF_Q, HALF_KV, PAGED, lib/attention, lib/attention_pieces,
// lib/attention_rows, lib/attention_loads, lib/attention_sinks, lib/attention_wide or lib/attention_q8_0, one of
// lib/rows_*, and lib/attention_outputs, lib/attention_parts or lib/attention_fixup_rows

const THREADS: u32 = SUBGROUPS * SUBGROUP;
const SLOTS: u32 = THREADS / LANES;
// Keys of a slot in a step, and of the workgroup.
const KEYS_PER_SLOT: u32 = 4u;
const STEP: u32 = KEYS_PER_SLOT * SLOTS;
// Places for the elements of a lane.
const PLACES: u32 = 8u;

const_assert LANES >= 8u && LANES <= SUBGROUP && SUBGROUP / LANES <= 4u;

// What each subgroup has: vectors by place and lane, references and sums.
var<workgroup> sh_vectors: array<Rows, SUBGROUPS * PLACES * LANES>;
var<workgroup> sh_references: array<Rows, SUBGROUPS>;
var<workgroup> sh_totals: array<Rows, SUBGROUPS>;

// Of two halves, the one that a lane is for, with its partner's part of it.
fn halved(low: Rows, high: Rows, is_high: bool, distance: u32) -> Rows {
  return select(low, high, is_high) + subgroupShuffleXor(select(high, low, is_high), distance);
}

// The sums over a slot's lanes for one of four keys: for the first in the first quarter of the lanes, and so
// on.
fn product_of_slot(own: Products, lane: u32) -> Rows {
  let is_later = (lane & (LANES / 2u)) != 0u;
  let even = halved(own.a, own.c, is_later, LANES / 2u);
  let odd = halved(own.b, own.d, is_later, LANES / 2u);
  var sum = halved(even, odd, (lane & (LANES / 4u)) != 0u, LANES / 4u);
  for (var distance = LANES / 8u; distance > 0u; distance /= 2u) {
    sum += subgroupShuffleXor(sum, distance);
  }
  return sum;
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_invocation_id) invocation: u32,
) {
  let tile = tile_of(group);
  let index = subgroup * SUBGROUP + invocation;
  let lane = index % LANES;
  let slot = index / LANES;
  // Lanes behind a vector's end read the same as its last.
  let used = head_dim() / WIDTH;
  let column = min(lane, used - 1u);

  let end = tile.end;
  let last = max(end, 1u) - 1u;
  let is_plain = params.seq_q == 1u && !has(HAS_MASK);

  let left = head_dim() - column * WIDTH;
  let k_start = kv_step(tile.k) + kv_at(column * WIDTH);
  let v_start = kv_step(tile.v) + kv_at(column * WIDTH);
  var keys = fetch_keys(k_start, tile.batch, tile.begin + slot, SLOTS, last, left);
  var values = fetch_values(v_start, tile.batch, tile.begin + slot, SLOTS, last, left);
  let by = queries(tile, column * WIDTH, WIDTH);

  var out: Vector;
  var references = Rows(LOWEST);
  let unit = score_unit();
  let headroom = HEADROOM / unit;
  // Of the keys of this lane.
  var totals = Rows();
  let nth = lane / (LANES / KEYS_PER_SLOT);
  let first_lane = invocation - lane;
  let steps = (end - tile.begin + STEP - 1u) / STEP;
  for (var s = 0u; s < steps; s++) {
    let key = tile.begin + s * STEP;
    let next = key + STEP;
    var own = Products(products(keys.a, by), products(keys.b, by), products(keys.c, by), products(keys.d, by));
    if lane >= used {
      own = Products();
    }
    keys = fetch_keys(k_start, tile.batch, next + slot, SLOTS, last, left);
    let product = product_of_slot(own, lane);
    let score = scores(tile, key + nth * SLOTS + slot, end, is_plain && next <= end, product);
    var peak = max(score, subgroupShuffleXor(score, LANES / 4u));
    peak = max(peak, subgroupShuffleXor(peak, LANES / 2u));
    let raised = select(references, peak, peak > references + headroom);
    if is_raised(raised, references) {
      let rescale = rows_weights((references - raised) * unit);
      totals *= rescale;
      out = rescaled(out, rescale);
      references = raised;
    }
    let p = rows_weights((score - references) * unit);
    totals += p;
    out = added(out, values.a, subgroupShuffle(p, first_lane));
    out = added(out, values.b, subgroupShuffle(p, first_lane + LANES / 4u));
    out = added(out, values.c, subgroupShuffle(p, first_lane + LANES / 2u));
    out = added(out, values.d, subgroupShuffle(p, first_lane + 3u * LANES / 4u));
    values = fetch_values(v_start, tile.batch, next + slot, SLOTS, last, left);
  }

  // The sums of a slot, then all of the subgroup's slots on one scale.
  totals += subgroupShuffleXor(totals, LANES / 4u);
  totals += subgroupShuffleXor(totals, LANES / 2u);
  var reference = references;
  for (var distance = LANES; distance < SUBGROUP; distance *= 2u) {
    reference = max(reference, subgroupShuffleXor(reference, distance));
  }
  let rescale = rows_weights((references - reference) * unit);
  totals *= rescale;
  out = rescaled(out, rescale);
  for (var distance = LANES; distance < SUBGROUP; distance *= 2u) {
    totals += subgroupShuffleXor(totals, distance);
  }

  // Lanes of the same place in two slots share their elements, and those in four slots once more.
  var at = subgroup * PLACES * LANES + lane;
  if SUBGROUP / LANES >= 2u {
    let is_high = (index & LANES) != 0u;
    out.d0 = halved(out.d0, out.d4, is_high, LANES);
    out.d1 = halved(out.d1, out.d5, is_high, LANES);
    out.d2 = halved(out.d2, out.d6, is_high, LANES);
    out.d3 = halved(out.d3, out.d7, is_high, LANES);
    at += select(0u, 4u * LANES, is_high);
  }
  if SUBGROUP / LANES == 4u {
    let is_high = (index & (2u * LANES)) != 0u;
    out.d0 = halved(out.d0, out.d2, is_high, 2u * LANES);
    out.d1 = halved(out.d1, out.d3, is_high, 2u * LANES);
    at += select(0u, 2u * LANES, is_high);
  }
  sh_vectors[at] = out.d0;
  sh_vectors[at + LANES] = out.d1;
  if SUBGROUP / LANES <= 2u {
    sh_vectors[at + 2u * LANES] = out.d2;
    sh_vectors[at + 3u * LANES] = out.d3;
  }
  if SUBGROUP == LANES {
    sh_vectors[at + 4u * LANES] = out.d4;
    sh_vectors[at + 5u * LANES] = out.d5;
    sh_vectors[at + 6u * LANES] = out.d6;
    sh_vectors[at + 7u * LANES] = out.d7;
  }
  if invocation == 0u {
    sh_references[subgroup] = reference;
    sh_totals[subgroup] = totals;
  }
  workgroupBarrier();
  write_rows(tile, index, group, groups);
  finish(tile, index, group, groups);
}

// Writes what the subgroups have together.
fn write_rows(tile: Tile, index: u32, group: vec3<u32>, groups: vec3<u32>) {
  var reference = sh_references[0];
  for (var i = 1u; i < SUBGROUPS; i++) {
    reference = max(reference, sh_references[i]);
  }
  var total = Rows();
  for (var i = 0u; i < SUBGROUPS; i++) {
    total += sh_totals[i] * rows_weights((sh_references[i] - reference) * score_unit());
  }
  for (var at = index; at < WIDTH * LANES; at += THREADS) {
    let number = at % LANES * WIDTH + at / LANES;
    var sum = Rows();
    for (var i = 0u; i < SUBGROUPS; i++) {
      sum += sh_vectors[i * PLACES * LANES + at] * rows_weights((sh_references[i] - reference) * score_unit());
    }
    write_number(tile, group, groups, number, sum, reference, total);
  }
  if index == 0u {
    write_states(tile, group, groups, reference, total);
  }
}
