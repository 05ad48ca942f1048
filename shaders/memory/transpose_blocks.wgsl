// dst = src where the elements of src lie side by side along the columns and those of dst along the rows, and
// every row and column begins and ends at a multiple of 16 bytes: each invocation transposes a square of vectors in
// registers. Of 32 invocations, eight lie side by side along the columns and four along the rows, so that runs
// of 128 bytes are read and of 64 bytes written.
//
// needs: WIDTH (elements of a vector), transpose_square, lib/transpose

const ACROSS = 8u;
const SIDE = ACROSS * WIDTH;

@compute @workgroup_size(64)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let place = place_of(flat_group(workgroup.id, workgroup.count), SIDE);
  let row = lane / ACROSS * WIDTH;
  let column = lane % ACROSS * WIDTH;
  if place.exists && place.row + row < params.rows && place.column + column < params.columns {
    let first = vec2<u32>(
      place.src + row * params.src_row + column,
      place.dst + column * params.dst_column + row,
    );
    transpose_square(first / WIDTH, vec2<u32>(params.src_row, params.dst_column) / WIDTH);
  }
}
