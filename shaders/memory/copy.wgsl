// dst = convert(src), element by element, over up to six nested loops. An element is VEC_WIDTH numbers side
// by side, and each invocation does STEPS elements, so that enough loads are under way. Between equal types
// nothing is converted, so that every bit arrives.
//
// needs: SRCN, SRCV, YN (an element of src in memory and as a value, of dst in memory), ONE_LOOP, STEPS, load_src, map

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let first = flat_group(workgroup.id, workgroup.count) * (256u * STEPS) + lane;
  var at: array<u32, STEPS>;
  var value: array<SRCV, STEPS>;
  for (var s = 0u; s < STEPS; s++) {
    if first + s * 256u < params.n {
      let place = strided_index(first + s * 256u);
      at[s] = params.dst + place.y;
      value[s] = load_src(params.src + place.x, at[s]);
    }
  }
  for (var s = 0u; s < STEPS; s++) {
    if first + s * 256u < params.n {
      dst[at[s]] = map(value[s]);
    }
  }
}
