// Sine and cosine of any angle, to three units in the last place, and their quotient.

// An angle as quadrant · π/2 + rest, |rest| ≤ π/4.
struct Angle {
  quadrant: u32,
  rest: f32,
}

// 2/π in binary, after a word of zeros.
const TWO_OVER_PI = array<u32, 8>(
  0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu,
);

// 32 bits of two words that follow each other, from bit `shift` on.
fn funnel(high: u32, low: u32, shift: u32) -> u32 {
  return (high << shift) | ((low >> 1u) >> (31u - shift));
}

// The quadrant of a finite x ≥ 0 and the rest in it, from the bits of x · 2/π that count below 4 (M. H. Payne
// and R. N. Hanek, "Radian reduction for trigonometric functions", 1983). All in integers, so that no
// rounding spoils it.
fn reduce(x: f32) -> Angle {
  const QUARTER = 3.6572953e-10; // π/2 · 2⁻³²
  if x < 0.78539816 {
    return Angle(0u, x);
  }
  // x = m · 2^(e − 150) with e ≥ 126. Bits of 2/π that give multiples of 4 are left out.
  let bits = bitcast<u32>(x);
  let m = (bits & 0x7fffffu) | 0x800000u;
  let first = (bits >> 23u) - 120u;
  let word = first / 32u;
  let shift = first % 32u;
  let a = funnel(TWO_OVER_PI[word], TWO_OVER_PI[word + 1u], shift);
  let b = funnel(TWO_OVER_PI[word + 1u], TWO_OVER_PI[word + 2u], shift);
  let c = funnel(TWO_OVER_PI[word + 2u], TWO_OVER_PI[word + 3u], shift);
  // The product's first 64 bits: two of the quadrant, then the fraction.
  let carried = multiply_high(m, c);
  let low = m * b + carried;
  let high = m * a + multiply_high(m, b) + select(0u, 1u, low < carried);
  // To the nearest quadrant: the fraction's first bit is taken as a sign.
  let fraction = bitcast<i32>(funnel(high, low, 2u));
  let rest = (f32(fraction) + f32(low << 2u) * 2.3283064e-10) * QUARTER;
  return Angle((high + 0x20000000u) >> 30u, rest);
}

// The sine of an angle with some quadrants added.
fn sine(angle: Angle, quadrants: u32) -> f32 {
  let quadrant = angle.quadrant + quadrants;
  let x = angle.rest;
  let z = x * x;
  // S. L. Moshier, Cephes Mathematical Library, sinf.c.
  var y = 0.0;
  if (quadrant & 1u) == 0u {
    y = ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * x + x;
  } else {
    let p = (2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2;
    y = p * z * z - 0.5 * z + 1.0;
  }
  return select(y, -y, (quadrant & 2u) != 0u);
}

fn unary_sin(x: f32) -> f32 {
  if is_nan(x) || is_inf(x) {
    return nan();
  }
  let y = sine(reduce(unary_abs(x)), 0u);
  return select(y, -y, is_negative(x));
}

fn unary_cos(x: f32) -> f32 {
  if is_nan(x) || is_inf(x) {
    return nan();
  }
  return sine(reduce(unary_abs(x)), 1u);
}

fn unary_tan(x: f32) -> f32 {
  if is_nan(x) || is_inf(x) {
    return nan();
  }
  let angle = reduce(unary_abs(x));
  // No f32 is so near to a multiple of π/2 that the cosine would vanish.
  let y = sine(angle, 0u) / sine(angle, 1u);
  return select(y, -y, is_negative(x));
}
