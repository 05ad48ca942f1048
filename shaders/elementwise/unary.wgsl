// y = apply(x), element by element, over up to six nested loops. An element is VEC_WIDTH numbers side by
// side, and each invocation does STEPS elements, so that enough loads are under way.
//
// needs: XN, XV, YN (an element of x in memory and as a value, of y in memory), ONE_LOOP, STEPS, load_x, map

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let first = flat_group(workgroup.id, workgroup.count) * (256u * STEPS) + lane;
  var at: array<vec3<u32>, STEPS>;
  var value: array<XV, STEPS>;
  for (var s = 0u; s < STEPS; s++) {
    if first + s * 256u < params.n {
      at[s] = strided_index(first + s * 256u) + vec3<u32>(params.x, params.y, 0u);
      value[s] = load_x(at[s].x, at[s].y);
    }
  }
  for (var s = 0u; s < STEPS; s++) {
    if first + s * 256u < params.n {
      y[at[s].y] = map(value[s]);
    }
  }
}
