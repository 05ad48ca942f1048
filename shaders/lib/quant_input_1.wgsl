// Rows of A, number by number.
//
// needs: TA, a, params of lib/quant_product

alias AV = TA;

// Four numbers of a row of A from column k on, zeros behind its end.
fn load_a(row: u32, k: u32) -> vec4<f32> {
  let at = k + vec4<u32>(0u, 1u, 2u, 3u);
  // Loads under conditions would wait for each other.
  let i = params.a + row * params.a_ld + min(at, vec4<u32>(params.k - 1u));
  let v = vec4<f32>(f32(a[i.x]), f32(a[i.y]), f32(a[i.z]), f32(a[i.w]));
  return select(vec4<f32>(), v, at < vec4<u32>(params.k));
}
