// Random numbers: shift + scale · x, with x uniform in [0, 1) or normal. Each invocation makes a block of
// four.
//
// needs: T, TN (an element of the output), VEC_WIDTH, NORMAL, HAS_OFFSET (whether a number of 64 bits in memory is
// added to where in the stream they begin), write, lib/invocation_outputs

fn placed(number: f32) -> f32 {
  return params.shift + rounded(params.scale * number);
}

fn make_output(block: u32) {
  var start = vec2<u32>(params.start_low, params.start_high);
  if HAS_OFFSET == 1u {
    start.x += offsets[params.offset];
    start.y += offsets[params.offset + 1u] + select(0u, 1u, start.x < params.start_low);
  }
  // Numbers of the stream have 64 bits, so those of its blocks have 62.
  let low = ((start.x >> 2u) | (start.y << 30u)) + block;
  let high = ((start.y >> 2u) + select(0u, 1u, low < block)) & 0x3fffffffu;
  let words = philox(low, high, vec2<u32>(params.seed_low, params.seed_high));
  var x = vec4<f32>();
  if NORMAL == 1u {
    x = normals(words);
  } else {
    x = uniforms(words);
  }
  write(block, start.x & 3u, vec4<f32>(placed(x.x), placed(x.y), placed(x.z), placed(x.w)));
}
