// Grids of more than 65 535 workgroups are folded into rows.

// The number of a workgroup in a folded grid.
fn flat_group(group: vec3<u32>, groups: vec3<u32>) -> u32 {
  return group.y * groups.x + group.x;
}
