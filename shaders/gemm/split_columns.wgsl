// Splits an f32 matrix whose rows follow each other along k into parts of f16 (lib/f16_parts), and lays out three
// matrices one after another: of the first, the first and the second parts for a left operand, of the first, the second
// and the first parts for a right one. The product of what comes of two operands is then the sum of the three largest of
// the four products of their parts. What lies beyond the matrix is 0.
//
// An invocation splits two neighbours.
//
// needs: RIGHT, lib/f16_parts

fn element(row: u32, column: u32) -> f32 {
  if row >= params.rows || column >= params.columns {
    return 0.0;
  }
  return scaled_number(source[params.offset + row * params.ld + column], exponents[column]);
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let i = flat_group(workgroup.id, workgroup.count) * 256u + lane;
  let row = i / params.pairs;
  let pair = i % params.pairs;
  if row >= params.rows_out {
    return;
  }
  let both = parts_of(vec2<f32>(element(row, pair * 2u), element(row, pair * 2u + 1u)));
  let next = params.rows_out * params.pairs;
  parts[i] = both.x;
  parts[i + next] = select(both.x, both.y, RIGHT == 1u);
  parts[i + 2u * next] = select(both.y, both.x, RIGHT == 1u);
}
