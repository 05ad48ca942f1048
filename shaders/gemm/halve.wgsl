// Splits an f32 matrix into two of f16, the second of which has what the first leaves over, and lays out three of them
// one after another along k: big, big, small for the left factor and big, small, big for the right one. The product of
// what comes of two factors is then the sum of the three largest of the four products of their parts.
//
// Each line across k is scaled by a power of two that brings its largest magnitude to 2¹⁴ or a little above, so that
// neither part leaves the range of f16. What lies beyond the matrix is 0.
//
// An invocation makes eight elements of one of the three copies.
//
// needs: RIGHT, K_DOWN

struct Params {
  // Of the matrix, as it is stored.
  rows: u32,
  columns: u32,
  offset: u32,
  ld: u32,
  // Of one copy: rows, and groups of eight elements in a row.
  rows_out: u32,
  eights: u32,
  total: u32,
}

@group(0) @binding(0) var<storage, read> source: array<f32>;
@group(0) @binding(1) var<storage, read> exponents: array<i32>;
@group(0) @binding(2) var<storage, read_write> parts: array<vec4<u32>>;

// The exponent of the scaled lines.
const TOP: i32 = 14;

// 2 to the power of `e`, a normal number.
fn power(e: i32) -> f32 {
  return bitcast<f32>(u32(clamp(e, -126, 127) + 127) << 23u);
}

// The two parts of an element, as bits of f16 in the low half of a word.
fn part(row: u32, column: u32, small: bool) -> f32 {
  if row >= params.rows || column >= params.columns {
    return 0.0;
  }
  let line = select(row, column, K_DOWN == 1u);
  let x = source[params.offset + row * params.ld + column] * power(TOP - exponents[line]);
  let big = unpack2x16float(pack2x16float(vec2<f32>(x, 0.0))).x;
  return select(big, x - big, small);
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let i = flat_group(group, groups) * 256u + lane;
  if i >= params.total {
    return;
  }
  // Along k the copies follow each other, in a row or in rows.
  let across = select(3u * params.eights, params.eights, K_DOWN == 1u);
  let line = i / across;
  let place = i % across;
  let copy = select(place / params.eights, line / params.rows_out, K_DOWN == 1u);
  let row = select(line, line % params.rows_out, K_DOWN == 1u);
  let column = place % params.eights * 8u;
  let small = copy == select(2u, 1u, RIGHT == 1u);
  parts[i] = vec4<u32>(
    pack2x16float(vec2<f32>(part(row, column, small), part(row, column + 1u, small))),
    pack2x16float(vec2<f32>(part(row, column + 2u, small), part(row, column + 3u, small))),
    pack2x16float(vec2<f32>(part(row, column + 4u, small), part(row, column + 5u, small))),
    pack2x16float(vec2<f32>(part(row, column + 6u, small), part(row, column + 7u, small))),
  );
}
