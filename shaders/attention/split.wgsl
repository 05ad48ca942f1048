// Attention of few queries: a part of softmax(cap(scale · Q·Kᵀ) + mask) · V for each piece of the keys, which
// attention/combine or the last workgroup puts together.
//
// A workgroup takes one piece for ROWS rows, a row being a query of one of the heads that share keys and
// values, so that these are read once for all of them. A key's vector is spread over the lanes of a slot;
// each slot iterates over its own keys, four at a time, with a reference and a sum of its own (Dao et al.,
// "Flash-Decoding", 2023). While keys are multiplied, the next are on their way into registers, each with a
// name of its own, as drivers keep arrays elsewhere.
//
// needs: T, M = T or u32, HALF_Q, HALF_KV, PAGED, lib/attention, lib/attention_pieces, lib/attention_rows,
// lib/attention_loads, lib/attention_sinks, lib/attention_parts or lib/attention_fixup_rows, one of attention's readers, and
// one of lib/rows_*

const THREADS: u32 = 128u;
const KEYS_PER_SLOT: u32 = 4u;
// Fewest lanes of a slot, and so most slots.
const LEAST_LANES: u32 = 4u;
const MOST_SLOTS: u32 = THREADS / LEAST_LANES;

const_assert LEAST_LANES >= KEYS_PER_SLOT;

// Products of each lane, by slot, its key and lane; at the end, four elements of each invocation.
var<workgroup> sh_products: array<Rows, KEYS_PER_SLOT * (THREADS + MOST_SLOTS)>;
// Scores by slot and its key; at the end, references and sums of each slot.
var<workgroup> sh_scores: array<Rows, KEYS_PER_SLOT * MOST_SLOTS>;

// An invocation's lane in its slot, its slot, lanes of a slot, and slots.
struct Place {
  lane: u32,
  slot: u32,
  lanes: u32,
  slots: u32,
}

// Lanes of a slot, the same for the whole workgroup.
fn lanes_of_slot() -> u32 {
  var lanes = LEAST_LANES;
  while lanes * WIDTH < max(head_dim(), v_head_dim()) {
    lanes *= 2u;
  }
  return lanes;
}

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let tile = tile_of(group);
  let lanes = lanes_of_slot();
  let slots = THREADS / lanes;
  let place = Place(index % lanes, index / lanes, lanes, slots);
  // Lanes behind a vector's end read the same as its last.
  let used = (head_dim() + WIDTH - 1u) / WIDTH;
  let d = min(place.lane, used - 1u) * WIDTH;
  let left = head_dim() - d;
  let v_used = (v_head_dim() + WIDTH - 1u) / WIDTH;
  let v_d = min(place.lane, v_used - 1u) * WIDTH;
  let v_left = v_head_dim() - v_d;

  let end = tile.end;
  let last = max(end, 1u) - 1u;
  let is_plain = params.seq_q == 1u && !has(HAS_MASK);
  let k_start = kv_step(tile.k) + kv_at(d);
  let v_start = kv_step(tile.v) + kv_at(v_d);
  var keys = fetch_keys(k_start, tile.batch, tile.begin + place.slot, slots, last, left);
  var values = fetch_values(v_start, tile.batch, tile.begin + place.slot, slots, last, v_left);
  let by = queries(tile, d, left);

  var out: Vector;
  var references = Rows(LOWEST);
  var totals = Rows();
  let unit = score_unit();
  let headroom = HEADROOM / unit;
  let first = place.slot * KEYS_PER_SLOT;
  let step = KEYS_PER_SLOT * slots;
  let steps = (end - tile.begin + step - 1u) / step;
  for (var s = 0u; s < steps; s++) {
    let key = tile.begin + s * step;
    let next = key + step;
    let at = first * (lanes + 1u) + place.lane;
    sh_products[at] = products(keys.a, by);
    sh_products[at + (lanes + 1u)] = products(keys.b, by);
    sh_products[at + 2u * (lanes + 1u)] = products(keys.c, by);
    sh_products[at + 3u * (lanes + 1u)] = products(keys.d, by);
    keys = fetch_keys(k_start, tile.batch, next + place.slot, slots, last, left);
    workgroupBarrier();
    if place.lane < KEYS_PER_SLOT {
      let start = (first + place.lane) * (lanes + 1u);
      var sum = sh_products[start];
      for (var lane = 1u; lane < used; lane++) {
        sum += sh_products[start + lane];
      }
      let own = key + place.lane * slots + place.slot;
      sh_scores[first + place.lane] = scores(tile, own, end, is_plain && next <= end, sum);
    }
    workgroupBarrier();
    let a = sh_scores[first];
    let b = sh_scores[first + 1u];
    let c = sh_scores[first + 2u];
    let d = sh_scores[first + 3u];
    let peak = max(max(a, b), max(c, d));
    let raised = select(references, peak, peak > references + headroom);
    if is_raised(raised, references) {
      let rescale = rows_weights((references - raised) * unit);
      totals *= rescale;
      out = rescaled(out, rescale);
      references = raised;
    }
    let p = Products(
      rows_weights((a - references) * unit),
      rows_weights((b - references) * unit),
      rows_weights((c - references) * unit),
      rows_weights((d - references) * unit),
    );
    totals += (p.a + p.b) + (p.c + p.d);
    out = added(out, values.a, p.a);
    out = added(out, values.b, p.b);
    out = added(out, values.c, p.c);
    out = added(out, values.d, p.d);
    values = fetch_values(v_start, tile.batch, next + place.slot, slots, last, v_left);
  }

  // All slots on one scale.
  workgroupBarrier();
  if place.lane == 0u {
    sh_scores[place.slot] = references;
  }
  workgroupBarrier();
  var reference = sh_scores[0];
  for (var slot = 1u; slot < slots; slot++) {
    reference = max(reference, sh_scores[slot]);
  }
  let rescale = rows_weights((references - reference) * unit);
  out = rescaled(out, rescale);
  if place.lane == 0u {
    sh_scores[MOST_SLOTS + place.slot] = totals * rescale;
  }
  for (var u = 0u; u < UNIT_KV; u++) {
    workgroupBarrier();
    sh_products[index] = select(out.d4, out.d0, u == 0u);
    sh_products[THREADS + index] = select(out.d5, out.d1, u == 0u);
    sh_products[2u * THREADS + index] = select(out.d6, out.d2, u == 0u);
    sh_products[3u * THREADS + index] = select(out.d7, out.d3, u == 0u);
    workgroupBarrier();
    write_numbers(tile, index, place, 4u * u, group, groups);
  }
  if index == 0u {
    var total = Rows();
    for (var slot = 0u; slot < slots; slot++) {
      total += sh_scores[MOST_SLOTS + slot];
    }
    write_states(tile, group, groups, reference, total);
  }
  finish(tile, index, group, groups);
}

// Writes the sums over the slots of four elements of each lane, from `offset` on.
fn write_numbers(tile: Tile, index: u32, place: Place, offset: u32, group: vec3<u32>, groups: vec3<u32>) {
  for (var at = index; at < 4u * place.lanes; at += THREADS) {
    let lane = at % place.lanes;
    let i = at / place.lanes;
    let number = lane * WIDTH + offset + i;
    var sum = Rows();
    for (var slot = 0u; slot < place.slots; slot++) {
      sum += sh_products[i * THREADS + slot * place.lanes + lane];
    }
    write_number(tile, group, groups, number, sum, Rows(), Rows());
  }
}
