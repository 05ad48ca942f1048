// y = apply(a, b), element by element, over up to six nested loops. An element is VEC_WIDTH numbers side by
// side; a stride of 0 repeats an input. Each invocation does STEPS elements, so that enough loads are under
// way.
//
// needs: AN, AV, BN, BV, YN (elements in memory and as values), ONE_LOOP, STEPS, load_a, load_b, map

fn numbers() -> u32 {
  return params.numbers;
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let first = flat_group(workgroup.id, workgroup.count) * (256u * STEPS) + lane;
  var at: array<vec3<u32>, STEPS>;
  var left: array<AV, STEPS>;
  var right: array<BV, STEPS>;
  for (var s = 0u; s < STEPS; s++) {
    if first + s * 256u < params.n {
      at[s] = strided_index(first + s * 256u) + vec3<u32>(params.a, params.b, params.y);
      left[s] = load_a(at[s].x, at[s].z);
      right[s] = load_b(at[s].y, at[s].z);
    }
  }
  for (var s = 0u; s < STEPS; s++) {
    if first + s * 256u < params.n {
      y[at[s].z] = map(left[s], right[s]);
    }
  }
}
