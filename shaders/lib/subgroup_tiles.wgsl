// The entry point of kernels whose workgroups make a tile each, in subgroups of SUBGROUP invocations.
//
// needs: SUBGROUP, make_tile, which all invocations of a workgroup call for their tile, each with its subgroup and its lane

const SUBGROUPS: u32 = 4u;
const LANES: u32 = SUBGROUP;

@compute @workgroup_size(SUBGROUPS * SUBGROUP)
fn main(workgroup: Workgroup, @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32) {
  let flat = flat_group(workgroup.id, workgroup.count);
  if flat < params.tiles {
    make_tile(flat, subgroup, lane);
  }
}
