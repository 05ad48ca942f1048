// Rows into a cache of Q8_0: cache[indices[i], ..] = source[i, ..], in blocks of 32 elements, as backend-api's KvFormat
// has them. An invocation makes a block. Of equal indices, the last one wins.
//
// All is as exact as the host's arithmetic, though WGSL's divisions aren't: scales are divided as integers, and the
// inverse of one is mended by the remainder of its product.
//
// needs: S, INDEXED, lib/grid, lib/indexed_row

const BLOCK: u32 = 32u;
const BLOCK_WORDS: u32 = 9u;

// The largest magnitude that a block has, and NaN as f16.
const LARGEST: f32 = 8319008.0;
const NOT_A_NUMBER: u32 = 0x7e00u;

// Bits of the least scale that isn't rounded to 0 as f16: above 2⁻²⁵.
const LEAST_SCALE: u32 = 0x33000001u;

const FRACTION: u32 = 0x7fffffu;
const ONE: u32 = 0x800000u;

// The bits of a 127th of a number with these bits, rounded to the nearest, halves to even: its 24 digits, seven places
// to the left, make a quotient of 24 or 25.
fn scale_of(largest: u32) -> u32 {
  let exponent = largest >> 23u;
  let digits = ((largest & FRACTION) | ONE) << 7u;
  let quotient = digits / 127u;
  let rest = digits % 127u;
  if quotient < 2u * ONE {
    return ((exponent - 7u) << 23u) + quotient - ONE + select(0u, 1u, 2u * rest > 127u);
  }
  let half = quotient >> 1u;
  let is_up = (quotient & 1u) == 1u && (rest > 0u || (half & 1u) == 1u);
  return ((exponent - 6u) << 23u) + half - ONE + select(0u, 1u, is_up);
}

// 1 / d, rounded to the nearest. The product of both numbers' digits is near a power of two above 2³², so that its
// lowest 32 bits are how far from that it is.
fn inverse_of(scale: u32) -> f32 {
  let digits = i32((scale & FRACTION) | ONE);
  var bits = bitcast<u32>(1.0 / bitcast<f32>(scale));
  var rest = -(digits * i32((bits & FRACTION) | ONE));
  for (var i = 0u; i < 4u; i++) {
    let step = select(0, 1, 2 * rest > digits) - select(0, 1, 2 * rest < -digits);
    bits = bitcast<u32>(bitcast<i32>(bits) + step);
    rest -= step * digits;
  }
  return bitcast<f32>(bits);
}

// A scale as f16, rounded to the nearest, halves to even.
fn half_bits(scale: u32) -> u32 {
  if scale < 0x38800000u {
    // A subnormal number is so many times 2⁻²⁴.
    return u32(round(bitcast<f32>(scale) * 16777216.0));
  }
  return ((scale + 0xfffu + ((scale >> 13u) & 1u)) >> 13u) - (112u << 10u);
}

// A quant: rounded to the nearest, halves away from zero.
fn quant(x: f32) -> u32 {
  let whole = trunc(abs(x));
  let magnitude = i32(whole) + select(0, 1, abs(x) - whole >= 0.5);
  return bitcast<u32>(select(magnitude, -magnitude, x < 0.0)) & 0xffu;
}

// The row of the cache that row i of the source goes to, which is row r of the workgroup's, or one behind the last.
fn target_of(i: u32, r: u32) -> u32 {
  if INDEXED == 0u {
    return i;
  }
  return indexed_row(i, r);
}

@compute @workgroup_size(64)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) index: u32) {
  let start = flat_group(workgroup.id, workgroup.count) * 64u;
  let first_row = start / params.blocks;
  if first_row >= params.count {
    return;
  }
  if INDEXED == 1u {
    find_replaced(first_row, min((start + 63u) / params.blocks, params.count - 1u), index, 64u);
  }
  let number = start + index;
  let i = number / params.blocks;
  if i >= params.count {
    return;
  }
  let row = target_of(i, i - first_row);
  if row >= params.rows {
    return;
  }
  let block = number % params.blocks;
  let first = params.source + i * params.ld + block * BLOCK;
  let place = params.cache + row * params.stride + block * BLOCK_WORDS;

  // As bits, magnitudes are ordered like numbers, with NaN above all of them.
  var largest = 0u;
  for (var e = 0u; e < BLOCK; e++) {
    largest = max(largest, bitcast<u32>(f32(source[first + e])) & 0x7fffffffu);
  }
  let fits = largest <= bitcast<u32>(LARGEST);
  // Below, exponents are too small to be divided, and scales are 0 anyway.
  let scale = scale_of(max(largest, 0x20000000u));
  let is_zero = scale < LEAST_SCALE;
  let inverse = inverse_of(select(scale, 0x3f800000u, is_zero || !fits));
  cache[place] = select(NOT_A_NUMBER, select(half_bits(scale), 0u, is_zero), fits);
  for (var w = 0u; w < 8u; w++) {
    let at = first + 4u * w;
    var word = quant(f32(source[at]) * inverse);
    word |= quant(f32(source[at + 1u]) * inverse) << 8u;
    word |= quant(f32(source[at + 2u]) * inverse) << 16u;
    word |= quant(f32(source[at + 3u]) * inverse) << 24u;
    cache[place + 1u + w] = select(0u, word, fits && !is_zero);
  }
}
