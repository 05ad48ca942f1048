// Quotient and remainder by a number whose inverse is known. Below 2²², a quotient rounded down is off by one
// at most.
fn quotient_rest(n: u32, by: u32, inverse: f32) -> vec2<u32> {
  if u32(f32(n) * inverse) >= (1u << 22u) {
    return vec2<u32>(n / by, n % by);
  }
  return small_quotient_rest(n, by, inverse);
}

// Quotient and remainder where the quotient is known to be below 2²².
fn small_quotient_rest(n: u32, by: u32, inverse: f32) -> vec2<u32> {
  var quotient = u32(f32(n) * inverse);
  var rest = n - quotient * by;
  if rest >= 0x80000000u {
    quotient -= 1u;
    rest += by;
  }
  if rest >= by {
    quotient += 1u;
    rest -= by;
  }
  return vec2<u32>(quotient, rest);
}
