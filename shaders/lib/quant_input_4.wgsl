// Rows of A in vectors of four numbers, which its start, its leading dimension and k are multiples of.
//
// needs: TA, a, params of lib/quant_product

alias AV = vec4<TA>;

// Four numbers of a row of A from column k on, zeros behind its end.
fn load_a(row: u32, k: u32) -> vec4<f32> {
  let v = vec4<f32>(a[(params.a + row * params.a_ld + min(k, params.k - 4u)) / 4u]);
  return select(vec4<f32>(), v, k < params.k);
}
