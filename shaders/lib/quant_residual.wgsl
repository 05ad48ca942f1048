// What is added to a product.
//
// needs: TC, lib/quant_product

@group(0) @binding(6) var<storage, read> residual: array<TC>;

fn residual_at(row: u32, column: u32) -> f32 {
  return f32(residual[params.residual + row * params.residual_ld + column]);
}
