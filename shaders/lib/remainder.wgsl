// Remainders of divisions of floating-point numbers, exact: long division of the fractions, in integers.

// The remainder of a division rounded towards zero, with the sign of a.
fn binary_rem(a: f32, b: f32) -> f32 {
  if is_nan(a) || is_nan(b) || is_inf(a) || is_zero(b) {
    return nan();
  }
  let dividend = bitcast<u32>(a) & ~SIGN_BIT;
  let divisor = bitcast<u32>(b) & ~SIGN_BIT;
  // An infinite divisor too.
  if dividend < divisor {
    return a;
  }
  // Both are a fraction of 24 bits times 2^(e − 150); subnormal numbers have the exponent of the smallest
  // normal ones.
  let e = max(divisor >> 23u, 1u);
  let fraction = fraction_of(divisor);
  var rest = fraction_of(dividend) % fraction;
  // Eight digits an iteration, as many as fit above a rest of 24.
  for (var digits = max(dividend >> 23u, 1u) - e; digits > 0u; ) {
    let some = min(digits, 8u);
    rest = (rest << some) % fraction;
    digits -= some;
  }
  if rest == 0u {
    return with_sign(0.0, a);
  }
  let places = countLeadingZeros(rest) - 8u;
  if places < e {
    return with_sign(bitcast<f32>(((rest << places) & 0x7fffffu) | ((e - places) << 23u)), a);
  }
  return with_sign(bitcast<f32>(rest << (e - 1u)), a);
}

fn fraction_of(bits: u32) -> u32 {
  return (bits & 0x7fffffu) | select(0u, 0x800000u, bits >= SMALLEST_NORMAL);
}

// The remainder of a division rounded towards −∞, with the sign of b.
fn binary_mod(a: f32, b: f32) -> f32 {
  let rest = binary_rem(a, b);
  if is_nan(rest) {
    return rest;
  }
  if is_zero(rest) {
    return with_sign(rest, b);
  }
  return select(rest, rest + b, is_negative(rest) != is_negative(b));
}
