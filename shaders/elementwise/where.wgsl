// y = c ≠ 0 ? a : b, element by element, over up to five nested loops. An element is VEC_WIDTH numbers side
// by side; a stride of 0 repeats an input. Each invocation does STEPS elements, so that enough loads are
// under way.
//
// needs: CN, CV, AN, AV, BN, BV, YN (elements in memory and as values), ONE_LOOP, STEPS, load_c, load_a, load_b, map

fn numbers() -> u32 {
  return params.extents[1].w;
}

// Element `index` in c, a, b and y.
fn strided_index(index: u32) -> vec4<u32> {
  if ONE_LOOP == 1u {
    return params.starts + index * params.strides[0];
  }
  var rest = index;
  var at = params.starts;
  for (var d = params.extents[1].z; d > 1u; d--) {
    let extent = params.extents[(d - 1u) / 4u][(d - 1u) % 4u];
    let outer = rest / extent;
    at += (rest - outer * extent) * params.strides[d - 1u];
    rest = outer;
  }
  return at + rest * params.strides[0];
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let n = params.extents[1].y;
  let first = flat_group(workgroup.id, workgroup.count) * (256u * STEPS) + lane;
  var at: array<u32, STEPS>;
  var chosen: array<CV, STEPS>;
  var left: array<AV, STEPS>;
  var right: array<BV, STEPS>;
  for (var s = 0u; s < STEPS; s++) {
    if first + s * 256u < n {
      let place = strided_index(first + s * 256u);
      at[s] = place.w;
      chosen[s] = load_c(place.x, place.w);
      left[s] = load_a(place.y, place.w);
      right[s] = load_b(place.z, place.w);
    }
  }
  for (var s = 0u; s < STEPS; s++) {
    if first + s * 256u < n {
      y[at[s]] = map(chosen[s], left[s], right[s]);
    }
  }
}
