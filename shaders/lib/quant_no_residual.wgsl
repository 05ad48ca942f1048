// Products that nothing but C itself is added to.

fn residual_at(row: u32, column: u32) -> f32 {
  return 0.0;
}
