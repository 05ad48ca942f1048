// Sums of products of operands whose lines across k were scaled by powers of two, 2^(14 − exponent) (lib/f16_parts), for
// each row of A and column of B: the scaling is undone.
//
// needs: row_exponents, column_exponents

// Bindings of the exponents.
const EXPONENTS: u32 = 2u;

fn unscaled(sum: f32, row: u32, column: u32) -> f32 {
  let e = row_exponents[row] + column_exponents[column] - 28;
  // In two steps of about the same size, each of which is a normal number for every sum of two exponents.
  let half = e / 2;
  return sum * power(half) * power(e - half);
}

// Four columns from `column` on, of which `count` exist (at least one).
fn unscaled_four(sums: vec4<f32>, row: u32, column: u32, count: u32) -> vec4<f32> {
  let at = column + min(vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(count - 1u));
  return vec4<f32>(
    unscaled(sums.x, row, at.x),
    unscaled(sums.y, row, at.y),
    unscaled(sums.z, row, at.z),
    unscaled(sums.w, row, at.w),
  );
}

fn power(e: i32) -> f32 {
  return bitcast<f32>(u32(clamp(e, -126, 127) + 127) << 23u);
}
