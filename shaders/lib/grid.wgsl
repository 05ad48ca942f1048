// Grids of more than 65 535 workgroups are folded into rows.

// A workgroup in its grid. A kernel's `main` looks at the members itself: in HLSL, other functions have no `count`. With
// an invocation's index among the members, browsers would take all of them for varying, and refuse barriers.
struct Workgroup {
  @builtin(workgroup_id) id: vec3<u32>,
  @builtin(num_workgroups) count: vec3<u32>,
}

// The number of a workgroup in a folded grid.
fn flat_group(group: vec3<u32>, groups: vec3<u32>) -> u32 {
  return group.y * groups.x + group.x;
}
