// The entry point of kernels whose workgroups make a tile each.
//
// needs: THREADS, make_tile, which all invocations of a workgroup call for their tile, each with its own index

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) index: u32) {
  let flat = flat_group(workgroup.id, workgroup.count);
  if flat < params.tiles {
    make_tile(flat, index);
  }
}
