// The quants of Mxfp4 as numbers for fragments, exact in f16: twice the values of E2M1, whose sign, exponent and mantissa
// are the sign of f16, the lowest bits of its exponent and the highest of its mantissa, a 2¹⁵th of the result.
//
// E2M1's smallest numbers are subnormal ones of f16 before they are multiplied. On a device that takes these for zero,
// products are wrong, so what uses this file is for kernels with a self-test.
//
// needs: lib/quant_mxfp4

const SIGNS: u32 = 0x80008000u;
const MAGNITUDES: u32 = 0x0e000e00u;

// Pairs of numbers, the first of each in the lower half.
fn doubled_halves(even: u32, odd: u32) -> vec4<f16> {
  return 32768.0h * vec4<f16>(vec2<f16>(unpack2x16float(even)), vec2<f16>(unpack2x16float(odd)));
}

// The first four quants of a word, which has no zero point, and the last four.
fn first_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  let word = q.words[block];
  let even = ((word << 12u) & SIGNS) | ((word << 9u) & MAGNITUDES);
  let odd = ((word << 8u) & SIGNS) | ((word << 5u) & MAGNITUDES);
  return doubled_halves(even, odd);
}

fn last_quants(q: Quants, block: u32, zero: f32) -> vec4<f16> {
  let word = q.words[block];
  let even = ((word << 4u) & SIGNS) | ((word << 1u) & MAGNITUDES);
  let odd = (word & SIGNS) | ((word >> 3u) & MAGNITUDES);
  return doubled_halves(even, odd);
}
