// Vectors and scores of the rows that share keys. A vector is spread over lanes, each with eight elements of
// every row at most.
//
// needs: lib/attention, lib/attention_pieces, one of attention's readers, and one of lib/rows_*

// Elements of a lane.
const WIDTH: u32 = 4u * UNIT_KV;

// How far a score may be above the reference from which weights are counted, in powers of two, before that is
// raised: sums of f32 have room, and what has been summed up rarely has to be rescaled.
const HEADROOM: f32 = 32.0;

struct Vector {
  d0: Rows,
  d1: Rows,
  d2: Rows,
  d3: Rows,
  d4: Rows,
  d5: Rows,
  d6: Rows,
  d7: Rows,
}

// What a lane has of four keys.
struct Four {
  a: Fetched,
  b: Fetched,
  c: Fetched,
  d: Fetched,
}

// Its products with them.
struct Products {
  a: Rows,
  b: Rows,
  c: Rows,
  d: Rows,
}

// A lane's elements of the queries.
fn queries(tile: Tile, d: u32, left: u32) -> Vector {
  var result: Vector;
  var place = place_of(tile, tile.row);
  for (var r = 0u; r < ROWS; r++) {
    let at = params.q.x + tile.batch * params.q.y + place.x * params.q.z + place.y * params.q.w + d;
    let low = load_q(at, left);
    result.d0 = with_row(result.d0, r, low[0].x);
    result.d1 = with_row(result.d1, r, low[0].y);
    result.d2 = with_row(result.d2, r, low[0].z);
    result.d3 = with_row(result.d3, r, low[0].w);
    if UNIT_KV == 2u {
      var high = low[UNIT_Q - 1u];
      if UNIT_Q == 1u {
        high = load_q(at + 4u, left - 4u)[0];
      }
      result.d4 = with_row(result.d4, r, high.x);
      result.d5 = with_row(result.d5, r, high.y);
      result.d6 = with_row(result.d6, r, high.z);
      result.d7 = with_row(result.d7, r, high.w);
    }
    place = next_place(tile, place);
  }
  return result;
}

// The products of the rows and a lane's part of a key.
fn products(words: Fetched, by: Vector) -> Rows {
  let x = numbers_kv(words);
  let low = x[0];
  var sum = low.x * by.d0 + low.y * by.d1 + low.z * by.d2 + low.w * by.d3;
  if UNIT_KV == 2u {
    let high = x[UNIT_KV - 1u];
    sum += high.x * by.d4 + high.y * by.d5 + high.z * by.d6 + high.w * by.d7;
  }
  return sum * scale_kv(words);
}

fn added(to: Vector, words: Fetched, weights: Rows) -> Vector {
  let p = weights * scale_kv(words);
  let x = numbers_kv(words);
  let low = x[0];
  let high = x[UNIT_KV - 1u];
  var sum = to;
  sum.d0 += low.x * p;
  sum.d1 += low.y * p;
  sum.d2 += low.z * p;
  sum.d3 += low.w * p;
  if UNIT_KV == 2u {
    sum.d4 += high.x * p;
    sum.d5 += high.y * p;
    sum.d6 += high.z * p;
    sum.d7 += high.w * p;
  }
  return sum;
}

fn rescaled(x: Vector, by: Rows) -> Vector {
  return Vector(x.d0 * by, x.d1 * by, x.d2 * by, x.d3 * by, x.d4 * by, x.d5 * by, x.d6 * by, x.d7 * by);
}

fn rows_weights(x: Rows) -> Rows {
  return select(exp2(x), Rows(), (rows_bits(x) - BELOW_LEAST) < RowsBits(RANGE_BELOW));
}

// The scores of a key by its products. `plain`: every row sees it, and no mask adds to it.
fn scores(tile: Tile, key: u32, end: u32, plain: bool, products: Rows) -> Rows {
  var s = products;
  if has(NATURAL) {
    s = rows_scaled(s);
  }
  if plain {
    return s;
  }
  var place = place_of(tile, tile.row);
  for (var r = 0u; r < ROWS; r++) {
    let seen = visible(place.y, tile.real);
    if key < seen.x || key >= min(seen.y, end) {
      s = with_row(s, r, -inf());
    } else if has(HAS_MASK) {
      s = with_row(s, r, masked(row_of(s, r), mask_row(tile.batch, place.x, place.y) + key));
    }
    place = next_place(tile, place);
  }
  return s;
}
