// Reductions across the 256 invocations of a workgroup, split into teams.
//
// A team of `size` invocations (a power of two) works on one slice of a tensor. `stride` is the distance between its
// members: 1 where neighbours shall read along the slice; 256 / size, the number of teams, where neighbours shall read
// from neighbouring slices. Either way neighbouring invocations touch neighbouring memory.

var<workgroup> sh_team: array<f32, 256>;

// The number of an invocation's team.
fn team_number(lane: u32, size: u32, stride: u32) -> u32 {
  return lane / (size * stride) * stride + lane % stride;
}

// The place of an invocation in its team.
fn team_rank(lane: u32, size: u32, stride: u32) -> u32 {
  return lane / stride % size;
}

// The reduction of the x of all members of a team, for each of them. `size` has to be the same in the whole workgroup,
// and all of its invocations have to come here.
fn team_reduce(op: u32, lane: u32, size: u32, stride: u32, x: f32) -> f32 {
  if size == 1u {
    return x;
  }
  let rank = team_rank(lane, size, stride);
  sh_team[lane] = x;
  workgroupBarrier();
  for (var half = size / 2u; half > 0u; half /= 2u) {
    if rank < half {
      sh_team[lane] = combine(op, sh_team[lane], sh_team[lane + half * stride]);
    }
    workgroupBarrier();
  }
  let result = sh_team[lane - rank * stride];
  // Nobody may go on to the next reduction before all have read this one.
  workgroupBarrier();
  return result;
}
