// output[i, :] = the rows of a quantised matrix as f16. An invocation makes the words j of the four blocks of a unit,
// 32 elements, so that it reads its quants at once and writes 16 bytes at a time.
//
// Columns, the output's start and its leading dimension are multiples of eight elements.
//
// needs: T = f16, a format's scales and its lib/quant_fragments_*, lib/quant_weights, lib/invocation_outputs

fn packed(numbers: vec4<T>) -> vec2<u32> {
  return vec2<u32>(pack2x16float(vec2<f32>(numbers.xy)), pack2x16float(vec2<f32>(numbers.zw)));
}

fn make_output(i: u32) {
  let row = i / params.words;
  let word = i - row * params.words;
  let unit = word / 4u;
  let j = word % 4u;
  let q = load_quants(row, unit, j);
  let s = load_scales(row, unit);
  for (var block = 0u; block < 4u; block++) {
    let column = 128u * unit + 32u * block + 8u * j;
    if column < params.columns {
      let by = scale_of(s, block, j);
      let first = weights(first_quants(q, block, by.zero), by);
      let last = weights(last_quants(q, block, by.zero), by);
      output[(params.output + row * params.ld + column) / 8u] = vec4<u32>(packed(first), packed(last));
    }
  }
}
