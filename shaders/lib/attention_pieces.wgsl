// What a workgroup of attention/split and its like works on: ROWS rows that share keys, a row being a query
// of a head, and a piece of those keys. The grid is pieces × chunks of rows of each head × batches. `tiles` is
// the length of a piece; where the number of keys lies on the device, pieces are multiples of it.
//
// needs: ROWS, lib/attention, lib/attention_places

struct Tile {
  batch: u32,
  // The first of the heads that share keys and values, and the first of the rows.
  head: u32,
  row: u32,
  // Where the keys and values of the head begin.
  k: u32,
  v: u32,
  // Keys of the batch, and the piece of them.
  real: u32,
  begin: u32,
  end: u32,
}

fn rows() -> u32 {
  return params.seq_q * params.group;
}

fn tile_of(group: vec3<u32>) -> Tile {
  let chunks = (rows() + ROWS - 1u) / ROWS;
  var kv_head = group.y;
  var chunk = 0u;
  // Divisions take as long as a few keys.
  if chunks != 1u {
    kv_head = group.y / chunks;
    chunk = group.y % chunks;
  }
  let k_start = params.k.x + sequence_start(group.z, params.k) + kv_head * params.k.z;
  let v_start = params.v.x + sequence_start(group.z, params.v) + kv_head * params.v.z;
  let real = real_keys(group.z);
  var tile = Tile(group.z, kv_head * params.group, chunk * ROWS, k_start, v_start, real, 0u, 0u);
  // Of the keys that some row sees.
  let last_row = min(tile.row + ROWS, rows()) - 1u;
  let begin = visible(place_of(tile, tile.row).y, real).x;
  let end = max(begin, visible(place_of(tile, last_row).y, real).y);
  let length = piece_length(end - begin);
  tile.begin = min(end, begin + group.x * length);
  tile.end = min(end, tile.begin + length);
  return tile;
}

// Keys of a piece where some row sees so many. A cache has room for more keys than it holds: all pieces share
// those that it holds.
fn piece_length(seen: u32) -> u32 {
  if !has(HAS_LENGTHS) || seen == 0u {
    return params.tiles;
  }
  return (1u + (seen - 1u) / (pieces() * params.tiles)) * params.tiles;
}

// The head and the query of a row.
fn place_of(tile: Tile, row: u32) -> vec2<u32> {
  if params.seq_q == 1u {
    return vec2<u32>(tile.head + row, 0u);
  }
  return vec2<u32>(tile.head + row % params.group, row / params.group);
}

// The head and the query of the next row. Rows beyond the last are the last, and not written.
fn next_place(tile: Tile, place: vec2<u32>) -> vec2<u32> {
  if place.x + 1u < tile.head + params.group {
    return vec2<u32>(place.x + 1u, place.y);
  }
  return select(place, vec2<u32>(tile.head, place.y + 1u), place.y + 1u < params.seq_q);
}

// Where a row's part begins: four elements for its reference and its sum, then its vector.
fn part_of(tile: Tile, place: vec2<u32>, split: u32, splits: u32) -> u32 {
  let row = (tile.batch * params.heads + place.x) * params.seq_q + place.y;
  return (row * splits + split) * (4u * ((v_head_dim() + 3u) / 4u) + 4u);
}
