// The place of an element in up to three strided tensors that are iterated together.
//
// needs: ONE_LOOP

// Element `index` of nested loops, outermost first: each is an extent and the strides of three tensors.
fn strided_index(index: u32) -> vec3<u32> {
  if ONE_LOOP == 1u {
    return index * params.loops[0].yzw;
  }
  var rest = index;
  var at = vec3<u32>(0u);
  for (var d = params.rank; d > 1u; d--) {
    let extent = params.loops[d - 1u];
    let outer = rest / extent.x;
    at += (rest - outer * extent.x) * extent.yzw;
    rest = outer;
  }
  // What remains is within the outermost loop, so packed tensors need no division.
  return at + rest * params.loops[0].yzw;
}
