// What is added to a product.
//
// needs: residual, lib/quant_product

fn residual_at(row: u32, column: u32) -> f32 {
  return f32(residual[params.residual + row * params.residual_ld + column]);
}
