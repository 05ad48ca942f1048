// Reductions across the members of a row group by shuffles, where every row group is a part of a subgroup: nothing
// waits for a workgroup. The interface is that of lib/workgroup, for members that are neighbours.

struct Invocation {
  @builtin(subgroup_id) subgroup: u32,
  @builtin(subgroup_size) subgroup_size: u32,
  @builtin(subgroup_invocation_id) place: u32,
}

// Counted by subgroups, to which devices may assign invocations in any order.
fn index_of(invocation: Invocation) -> u32 {
  return invocation.subgroup * invocation.subgroup_size + invocation.place;
}

fn row_group_index(lane: u32, size: u32, stride: u32) -> u32 {
  return lane / size;
}

fn row_group_rank(lane: u32, size: u32, stride: u32) -> u32 {
  return lane % size;
}

fn row_group_reduce(op: u32, lane: u32, size: u32, stride: u32, x: f32) -> f32 {
  var result = x;
  for (var distance = size / 2u; distance > 0u; distance /= 2u) {
    result = combine(op, result, subgroupShuffleXor(result, distance));
  }
  return result;
}
