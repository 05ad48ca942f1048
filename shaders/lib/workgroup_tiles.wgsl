// The entry point of kernels whose workgroups make a tile each.
//
// needs: THREADS, make_tile, which makes the tile of this number by the invocation `index` and the others

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) index: u32) {
  let flat = flat_group(workgroup.id, workgroup.count);
  if flat < params.tiles {
    make_tile(flat, index);
  }
}
