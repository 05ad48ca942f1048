// dst = src where the elements of src lie side by side along the columns and those of dst along the rows:
// tiles of 64×64 go through workgroup memory, so that both sides are read and written in runs. Up to four
// other loops repeat this.
//
// needs: T, lib/transpose

const SIDE = 64u;
const THREADS = 256u;

// Rotated by its number, a row's and a column's elements lie in different banks.
var<workgroup> tile: array<T, SIDE * SIDE>;

fn slot(row: u32, column: u32) -> u32 {
  return row * SIDE + (column + row) % SIDE;
}

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let place = place_of(flat_group(workgroup.id, workgroup.count), SIDE);
  if !place.exists {
    return;
  }
  for (var i = lane; i < SIDE * SIDE; i += THREADS) {
    let row = i / SIDE;
    let column = i % SIDE;
    if place.row + row < params.rows && place.column + column < params.columns {
      tile[slot(row, column)] = src[place.src + row * params.src_row + column];
    }
  }
  workgroupBarrier();
  for (var i = lane; i < SIDE * SIDE; i += THREADS) {
    let column = i / SIDE;
    let row = i % SIDE;
    if place.row + row < params.rows && place.column + column < params.columns {
      dst[place.dst + column * params.dst_column + row] = tile[slot(row, column)];
    }
  }
}
