// Keys or values of Q8_0 as packed elements, `[batch, heads, tokens, dim]`: four of them for each invocation.
//
// needs: T, lib/invocation_outputs

const BLOCK_WORDS: u32 = 9u;

fn make_output(four: u32) {
  let row = four / (params.dim / 4u);
  let d = four % (params.dim / 4u) * 4u;
  let token = row % params.tokens;
  let head = row / params.tokens % params.heads;
  let batch = row / params.tokens / params.heads;
  let vector = params.blocks + batch * params.by_batch + head * params.by_head + token * params.by_token;
  let block = vector + d / 32u * BLOCK_WORDS;
  let quants = bitcast<i32>(blocks[block + 1u + d % 32u / 4u]);
  let numbers = vec4<f32>((vec4<i32>(quants) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
  let result = numbers * unpack2x16float(blocks[block]).x;
  for (var i = 0u; i < 4u; i++) {
    elements[params.elements + 4u * four + i] = T(result[i]);
  }
}
