// O = softmax(cap(scale · Q·Kᵀ) + mask) · V, block by block of keys, without ever holding the scores of a
// row.
//
// A workgroup works on TILE_Q queries of one head. For each TILE_KV keys it forms the scores, keeps the
// running maximum and sum of each query, rescales what it has of the output, and adds the block's part
// (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention",
// 2022). Blocks that no query of the tile sees are left out.
//
// An invocation holds ROWS queries by KEYS vec4s of keys of the scores, and the same queries by DIMS vec4s of
// the output. Q and K pass through workgroup memory in chunks of 32 elements, then the weights and V in
// passes of 32 keys, in the same memory. Its vectors of four are permuted within each row, so that neighbours
// read different banks. While keys or values are worked on, the next are on their way into registers. No
// constant bounds the long loops, so that drivers don't write them out, which takes them longer to compile
// than the work itself.
//
// Where tiles of queries alone don't fill the device, the keys are split into pieces, each for a workgroup of its
// own. The last piece of a tile may be far shorter than the others; workgroups for last pieces come after all others, so
// that they run where these leave places. With PARTS = 1, the output is what these make of a row, as attention/combine
// reads it: a reference, a sum, the head's sink, a number that nobody reads, and a vector.
//
// needs: T, O = T or f32, GROUPS, LANES, ROWS, KEYS, DIMS, HALF_Q, HALF_KV, PARTS, lib/attention,
// lib/attention_staging, lib/attention_contiguous, lib/attention_seen, lib/attention_sinks, and lib/attention_wide or
// lib/attention_narrow

const THREADS: u32 = LANES * GROUPS;
const TILE_Q: u32 = ROWS * GROUPS;
const TILE_KV: u32 = 4u * LANES * KEYS;
const ROWS4: u32 = ROWS / 4u;

// Vec4s of a chunk of a vector, and of the weights of a query in a pass.
const VEC4S: u32 = 8u;
const PASS: u32 = 4u * VEC4S;
// Vec4s of a vector of the output, and vec4s of weights whose values are in workgroup memory at once.
const COLUMNS: u32 = LANES * DIMS;
const SLOTS: u32 = VEC4S * KEYS / DIMS;
// What an invocation fetches at once of the keys or the values, and of the queries.
const FETCHES: u32 = 4u * SLOTS * COLUMNS / UNIT_KV / THREADS;
const LOADS: u32 = TILE_Q * VEC4S / UNIT_Q / THREADS;

const KEYS_AT: u32 = TILE_Q * VEC4S;
const SHARED: u32 = (TILE_Q + TILE_KV) * VEC4S;

const_assert ROWS * DIMS <= 32u;
const_assert LANES % 8u == 0u && GROUPS % 8u == 0u && ROWS % 4u == 0u && VEC4S % SLOTS == 0u;
const_assert FETCHES * THREADS * UNIT_KV == TILE_KV * VEC4S && LOADS * THREADS * UNIT_Q == TILE_Q * VEC4S;

var<workgroup> sh: array<vec4<f32>, SHARED>;

struct Tile {
  batch: u32,
  head: u32,
  query: u32,
  // Where the operands of the head begin.
  q: u32,
  k: u32,
  v: u32,
  // Keys of the batch, and those of the piece that some query of the tile sees.
  real: u32,
  begin: u32,
  end: u32,
}

// An invocation's first query, and the number of its keys and of its column.
struct Place {
  group: u32,
  lane: u32,
}

// Each 32 invocations cover 4 queries by 8 keys rather than a line: fewer elements are read for more results.
fn place_of(index: u32) -> Place {
  let square = index / 32u;
  let inner = index % 32u;
  return Place(square / (LANES / 8u) * 4u + inner / 8u, square % (LANES / 8u) * 8u + inner % 8u);
}

fn tile_of(flat: u32, piece: u32) -> Tile {
  let tiles = (params.seq_q + TILE_Q - 1u) / TILE_Q;
  let place = tile_and_head(flat, tiles);
  let query = place.x * TILE_Q;
  let head = place.y % params.heads;
  let batch = place.y / params.heads;
  let kv_head = head / params.group;
  let real = real_keys(batch);
  let length = blocks_of_piece() * TILE_KV;
  return Tile(
    batch,
    head,
    query,
    params.q.x + batch * params.q.y + head * params.q.z,
    params.k.x + batch * params.k.y + kv_head * params.k.z,
    params.v.x + batch * params.v.y + kv_head * params.v.z,
    real,
    max(visible(query, real).x, piece * length),
    min(visible(min(query + TILE_Q, params.seq_q) - 1u, real).y, piece * length + length),
  );
}

// Blocks of keys in each piece but the last, which `pieces` has here.
fn blocks_of_piece() -> u32 {
  return select(blocks_of_keys(), pieces(), PARTS == 1u);
}

fn blocks_of_keys() -> u32 {
  return (params.seq_kv + TILE_KV - 1u) / TILE_KV;
}

// Pieces of each tile's keys.
fn pieces_of_keys() -> u32 {
  return select(1u, (blocks_of_keys() + blocks_of_piece() - 1u) / blocks_of_piece(), PARTS == 1u);
}

// The pass that has the `four`-th four of an invocation's keys: number `lane % 8` of each of its eighths.
fn pass_of(place: Place, four: u32) -> u32 {
  return place.lane / 8u * KEYS + four;
}

// Adds the products of an invocation's queries with its keys, over the chunk that is staged, of which so many
// vec4s are in the vectors.
fn add_products(place: Place, vec4s: u32, sums: ptr<function, array<vec4<f32>, ROWS * KEYS>>) {
  let swizzle = place.lane % 8u;
  for (var c = 0u; c < vec4s; c++) {
    var keys: array<mat4x4<f32>, KEYS>;
    for (var k = 0u; k < KEYS; k++) {
      let at = KEYS_AT + (pass_of(place, k) * PASS + swizzle) * VEC4S + (c ^ swizzle);
      keys[k] = transpose(mat4x4<f32>(sh[at], sh[at + 8u * VEC4S], sh[at + 16u * VEC4S], sh[at + 24u * VEC4S]));
    }
    for (var i = 0u; i < ROWS; i++) {
      let row = sh[place.group * VEC4S + (c ^ (place.group % 8u)) + i * GROUPS * VEC4S];
      for (var k = 0u; k < KEYS; k++) {
        let at = i * KEYS + k;
        (*sums)[at] += row.x * keys[k][0];
        (*sums)[at] += row.y * keys[k][1];
        (*sums)[at] += row.z * keys[k][2];
        (*sums)[at] += row.w * keys[k][3];
      }
    }
  }
}

// The scores of a block, −∞ for keys that a query doesn't see.
fn scores(tile: Tile, place: Place, key: u32, products: array<vec4<f32>, ROWS * KEYS>) -> array<vec4<f32>, ROWS * KEYS> {
  var result = products;
  if has(NATURAL) {
    for (var i = 0u; i < ROWS * KEYS; i++) {
      result[i] = scaled(result[i]);
    }
  }
  let last = min(tile.query + TILE_Q, params.seq_q) - 1u;
  let whole = visible(last, tile.real).x <= key && key + TILE_KV <= visible(tile.query, tile.real).y;
  if whole && !has(HAS_MASK) {
    return result;
  }
  for (var i = 0u; i < ROWS; i++) {
    let query = min(tile.query + place.group + i * GROUPS, params.seq_q - 1u);
    let seen = visible(query, tile.real);
    for (var k = 0u; k < KEYS; k++) {
      let tokens = key + pass_of(place, k) * PASS + place.lane % 8u + vec4<u32>(0u, 8u, 16u, 24u);
      var x = result[i * KEYS + k];
      if has(HAS_MASK) {
        let at = mask_row(tile.batch, tile.head, query) + min(tokens, vec4<u32>(params.seq_kv - 1u));
        x = vec4<f32>(masked(x.x, at.x), masked(x.y, at.y), masked(x.z, at.z), masked(x.w, at.w));
      }
      let is_unseen = (tokens < vec4<u32>(seen.x)) | (tokens >= vec4<u32>(seen.y));
      result[i * KEYS + k] = select(x, vec4<f32>(-inf()), is_unseen);
    }
  }
  return result;
}

// The largest, or the sum, of what the lanes have for each query.
fn across_lanes(place: Place, mine: array<vec4<f32>, ROWS4>, adding: bool) -> array<vec4<f32>, ROWS4> {
  workgroupBarrier();
  for (var i = 0u; i < ROWS4; i++) {
    sh[(i * GROUPS + place.group) * LANES + place.lane] = mine[i];
  }
  workgroupBarrier();
  var all: array<vec4<f32>, ROWS4>;
  for (var i = 0u; i < ROWS4; i++) {
    let row = (i * GROUPS + place.group) * LANES;
    all[i] = select(vec4<f32>(LOWEST), vec4<f32>(), adding);
    for (var l = 0u; l < LANES; l++) {
      let other = sh[row + (l + place.group) % LANES];
      all[i] = select(max(all[i], other), all[i] + other, adding);
    }
  }
  return all;
}

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) index: u32) {
  let flat = flat_group(workgroup.id, workgroup.count);
  if flat >= params.tiles * pieces_of_keys() {
    return;
  }
  let piece = flat / params.tiles;
  let tile = tile_of(flat % params.tiles, piece);
  let place = place_of(index);

  var out: array<vec4<f32>, ROWS * DIMS>;
  var peaks: array<vec4<f32>, ROWS4>;
  // This invocation's part of the sums.
  var totals: array<vec4<f32>, ROWS4>;
  for (var i = 0u; i < ROWS4; i++) {
    peaks[i] = vec4<f32>(LOWEST);
  }
  let unit = score_unit();

  let vec4s = (head_dim() + 3u) / 4u;
  let chunks = (vec4s + VEC4S - 1u) / VEC4S;
  let first = tile.begin / TILE_KV * TILE_KV;
  var next = fetch_keys(tile, index, first, 0u);
  let blocks = (tile.end + TILE_KV - 1u) / TILE_KV;
  for (var block = tile.begin / TILE_KV; block < blocks; block++) {
    let key = block * TILE_KV;
    // In Chromium, a variable of a loop that isn't given a value keeps the last iteration's.
    var p = array<vec4<f32>, ROWS * KEYS>();
    for (var chunk = 0u; chunk < chunks; chunk++) {
      workgroupBarrier();
      stage_keys(index, next);
      stage_q(tile, index, chunk);
      workgroupBarrier();
      if chunk + 1u < chunks {
        next = fetch_keys(tile, index, key, chunk + 1u);
      } else {
        next = fetch_values(tile, index, key, 0u);
      }
      add_products(place, min(VEC4S, vec4s - chunk * VEC4S), &p);
    }
    p = scores(tile, place, key, p);

    var tops: array<vec4<f32>, ROWS4>;
    for (var i = 0u; i < ROWS; i++) {
      var top = p[i * KEYS];
      for (var k = 1u; k < KEYS; k++) {
        top = max(top, p[i * KEYS + k]);
      }
      tops[i / 4u][i % 4u] = max(max(top.x, top.y), max(top.z, top.w));
    }
    tops = across_lanes(place, tops, false);
    for (var i = 0u; i < ROWS4; i++) {
      let peak = max(peaks[i], tops[i]);
      let rescale = weights((peaks[i] - peak) * unit);
      peaks[i] = peak;
      for (var j = 0u; j < 4u; j++) {
        let row = 4u * i + j;
        totals[i][j] *= rescale[j];
        for (var k = 0u; k < KEYS; k++) {
          let w = weights((p[row * KEYS + k] - peak[j]) * unit);
          totals[i][j] += (w.x + w.y) + (w.z + w.w);
          p[row * KEYS + k] = w;
        }
        for (var c = 0u; c < DIMS; c++) {
          out[row * DIMS + c] *= rescale[j];
        }
      }
    }

    // Passes of keys that some query sees.
    let passes = (min(TILE_KV, tile.end - key) + PASS - 1u) / PASS;
    for (var round = 0u; round < passes; round++) {
      for (var slot = 0u; slot < VEC4S; slot += SLOTS) {
        workgroupBarrier();
        for (var k = 0u; k < KEYS; k++) {
          if slot == 0u && pass_of(place, k) == round {
            for (var i = 0u; i < ROWS; i++) {
              let row = place.group + i * GROUPS;
              sh[row * VEC4S + ((place.lane ^ row) % 8u)] = p[i * KEYS + k];
            }
          }
        }
        stage_values(index, next);
        workgroupBarrier();
        if slot + SLOTS < VEC4S {
          next = fetch_values(tile, index, key + round * PASS, slot + SLOTS);
        } else if round + 1u < passes {
          next = fetch_values(tile, index, key + round * PASS + PASS, 0u);
        } else {
          next = fetch_keys(tile, index, key + TILE_KV, 0u);
        }
        let slots = min(SLOTS, tile.end - min(tile.end, key + round * PASS + slot));
        for (var s = 0u; s < slots; s++) {
          var values: array<vec4<f32>, 4u * DIMS>;
          for (var c = 0u; c < DIMS; c++) {
            for (var j = 0u; j < 4u; j++) {
              values[c * 4u + j] = sh[KEYS_AT + s * COLUMNS + place.lane + j * SLOTS * COLUMNS + c * LANES];
            }
          }
          for (var i = 0u; i < ROWS; i++) {
            let w = sh[place.group * VEC4S + ((slot + s) ^ (place.group % 8u)) + i * GROUPS * VEC4S];
            for (var c = 0u; c < DIMS; c++) {
              let at = i * DIMS + c;
              out[at] += w.x * values[c * 4u];
              out[at] += w.y * values[c * 4u + 1u];
              out[at] += w.z * values[c * 4u + 2u];
              out[at] += w.w * values[c * 4u + 3u];
            }
          }
        }
      }
    }
  }

  totals = across_lanes(place, totals, true);
  let sink = sink_of(tile.head);
  if PARTS == 1u {
    for (var i = 0u; i < ROWS; i++) {
      let query = tile.query + place.group + i * GROUPS;
      if query < params.seq_q {
        let row = (tile.batch * params.heads + tile.head) * params.seq_q + query;
        let base = (row * pieces_of_keys() + piece) * ((v_head_dim() + 7u) / 4u * 4u);
        if place.lane == 0u {
          write_part(base, vec4<f32>(peaks[i / 4u][i % 4u], totals[i / 4u][i % 4u], sink, 0.0));
        }
        for (var c = 0u; c < DIMS; c++) {
          let d = (c * LANES + place.lane) * 4u;
          if d < v_head_dim() {
            write_part(base + 4u + d, out[i * DIMS + c]);
          }
        }
      }
    }
    return;
  }
  // Bits of the vec4s that aren't finite.
  var wrong = 0u;
  for (var i = 0u; i < ROWS; i++) {
    let query = tile.query + place.group + i * GROUPS;
    if query < params.seq_q {
      let below = denominator(peaks[i / 4u][i % 4u], totals[i / 4u][i % 4u], sink);
      let base = params.o.x + tile.batch * params.o.y + tile.head * params.o.z + query * params.o.w;
      for (var c = 0u; c < DIMS; c++) {
        let d = (c * LANES + place.lane) * 4u;
        let result = out[i * DIMS + c] * below.factor;
        if !is_finite(result) && is_defined(below.total) {
          wrong |= 1u << (i * DIMS + c);
        }
        write_four(base, d, result);
      }
      if has(HAS_LSE) && place.lane == 0u {
        let row = (tile.batch * params.heads + tile.head) * params.seq_q + query;
        lse[params.lse_offset + row] = below.log_sum;
      }
    }
  }
  // Not in the loop above, which compilers write out.
  while wrong != 0u {
    let number = firstTrailingBit(wrong);
    wrong &= wrong - 1u;
    let query = tile.query + place.group + number / DIMS * GROUPS;
    let d = (number % DIMS * LANES + place.lane) * 4u;
    let base = params.o.x + tile.batch * params.o.y + tile.head * params.o.z + query * params.o.w;
    write_four(base, d, mean_of_seen(tile.batch, real_keys(tile.batch), tile.head, query, d, sink, read_four(base, d)));
  }
}

// Four elements of an output vector as they were written, and 0 beyond its end.
fn read_four(base: u32, d: u32) -> vec4<f32> {
  var four = vec4<f32>();
  for (var j = 0u; j < 4u; j++) {
    if d + j < v_head_dim() {
      four[j] = f32(o[base + d + j]);
    }
  }
  return four;
}

// Writes four elements of an output vector, or as many as it has.
fn write_four(base: u32, d: u32, numbers: vec4<f32>) {
  for (var j = 0u; j < 4u; j++) {
    if d + j < v_head_dim() {
      o[base + d + j] = O(numbers[j]);
    }
  }
}

// Writes four numbers of a part.
fn write_part(at: u32, numbers: vec4<f32>) {
  for (var j = 0u; j < 4u; j++) {
    o[at + j] = O(numbers[j]);
  }
}
