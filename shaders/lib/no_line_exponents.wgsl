// Sums of products of operands that were not scaled, where lib/line_exponents has others.

const EXPONENTS: u32 = 0u;

fn unscaled(sum: f32, row: u32, column: u32) -> f32 {
  return sum;
}

fn unscaled_four(sums: vec4<f32>, row: u32, column: u32, count: u32) -> vec4<f32> {
  return sums;
}
