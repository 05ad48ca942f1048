// Splits an f32 matrix into two of f16, the second of which has what the first leaves over, and lays out
// three of them one after another along k: big, big, small for the left operand and big, small, big for the
// right one. The product of what comes of two operands is then the sum of the three largest of the four
// products of their parts.
//
// Each line across k is scaled by a power of two that brings its largest magnitude to 2¹⁴ or a little above,
// so that neither part leaves the range of f16. What lies beyond the matrix is 0.
//
// An invocation splits two neighbours.
//
// needs: RIGHT, K_DOWN, lib/special

// The exponent of the scaled lines, and that of a line with an infinity or a NaN.
const TOP: i32 = 14;
const NO_EXPONENT: i32 = 128;

// 2 to the power of `e`, a normal number.
fn power(e: i32) -> f32 {
  return bitcast<f32>(u32(e + 127) << 23u);
}

// The scaled element, NaN if its line has no exponent.
fn element(row: u32, column: u32) -> f32 {
  if row >= params.rows || column >= params.columns {
    return 0.0;
  }
  let exponent = exponents[select(row, column, K_DOWN == 1u)];
  if exponent == NO_EXPONENT {
    return nan();
  }
  return source[params.offset + row * params.ld + column] * power(TOP - exponent);
}

// The nearest number with the eleven bits that f16 has. In bits, because compilers take a conversion there
// and back for none at all.
fn rounded(x: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(x) + 0x1000u) & 0xffffe000u);
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let i = flat_group(workgroup.id, workgroup.count) * 256u + lane;
  let row = i / params.pairs;
  let column = i % params.pairs;
  if row >= params.rows_out {
    return;
  }
  let x = vec2<f32>(element(row, column * 2u), element(row, column * 2u + 1u));
  let nearest = vec2<f32>(rounded(x.x), rounded(x.y));
  let big = pack2x16float(nearest);
  let small = pack2x16float(x - nearest);
  // Along k the copies follow each other, in a row or in rows.
  let next = select(params.pairs, params.rows_out * params.pairs, K_DOWN == 1u);
  let at = row * select(3u * params.pairs, params.pairs, K_DOWN == 1u) + column;
  parts[at] = big;
  parts[at + next] = select(big, small, RIGHT == 1u);
  parts[at + 2u * next] = select(small, big, RIGHT == 1u);
}
