// Copies the f16 filters of a 3×3 convolution, with adjacent channels, to the order in which conv/halo has them
// in fragments: sixteen filters by sixteen channels of a tap follow each other, for each invocation of a
// subgroup four channels of one filter and of the one eight below. Beyond the last filter, these are another's.
//
// needs: lib/invocation_outputs

fn make_output(i: u32) {
  let of_tap = params.channels / 16u;
  let fragment = i / 32u;
  let row = fragment / (9u * of_tap) * 16u + i % 32u / 4u;
  let rows = min(row + vec2<u32>(0u, 8u), vec2<u32>(params.filters - 1u));
  let tap = fragment / of_tap % 9u;
  let four = fragment % of_tap * 4u + i % 4u;
  let at = params.filter_offset / 4u + (rows * 9u + tap) * (params.channels / 4u) + four;
  fragments[i] = vec4<u32>(filter_values[at.x], filter_values[at.y]);
}
