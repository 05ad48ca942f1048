// The first of each chunk of 1024 entries of a row, in order: a bitonic sort (K. E. Batcher, 1968) in workgroup
// memory, of numbers or of entries that were sorted out before. An entry is a key and the number's index, by
// which equal keys are ordered, so that no two are equal.
//
// needs: X (elements of x: numbers, or the words of entries), load, INDICES (whether only the entries' indices
// are written)

const CHUNK = 1024u;

var<workgroup> keys: array<u32, CHUNK>;
var<workgroup> places: array<u32, CHUNK>;

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let number = flat_group(workgroup.id, workgroup.count);
  if number >= params.rows * params.chunks {
    return;
  }
  let row = number / params.chunks;
  let first = (number - row * params.chunks) * CHUNK;
  for (var i = lane; i < params.size; i += 256u) {
    let column = first + i;
    // Behind every entry.
    var entry = vec2<u32>(0xffffffffu, 0xffffffffu);
    if column < params.columns {
      entry = load(params.x, row * params.columns + column, column);
    }
    keys[i] = entry.x;
    places[i] = entry.y;
  }
  workgroupBarrier();

  for (var block = 2u; block <= params.size; block *= 2u) {
    for (var distance = block / 2u; distance > 0u; distance /= 2u) {
      for (var pair = lane; pair < params.size / 2u; pair += 256u) {
        let i = 2u * pair - (pair & (distance - 1u));
        let j = i + distance;
        let before = vec2<u32>(keys[i], places[i]);
        let after = vec2<u32>(keys[j], places[j]);
        if precedes(after, before) == ((i & block) == 0u) {
          keys[i] = after.x;
          places[i] = after.y;
          keys[j] = before.x;
          places[j] = before.y;
        }
      }
      workgroupBarrier();
    }
  }

  let offset = (number - row * params.chunks) * params.kept;
  for (var i = lane; i < params.kept; i += 256u) {
    if offset + i < params.row_kept {
      store(params.y, row * params.row_kept + offset + i, vec2<u32>(keys[i], places[i]));
    }
  }
}
