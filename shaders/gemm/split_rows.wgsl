// Splits an f32 matrix whose columns follow each other along k into parts of f16 (lib/f16_parts), and finds the exponents
// of its rows. In each row lie three rows one after another: of the first, the first and the second parts for a left
// operand, of the first, the second and the first parts for a right one, as gemm/split_columns lays out matrices. What
// lies beyond a row is 0.
//
// A workgroup takes 8 rows, each by 32 invocations, which read it twice: it is in the cache the second time.
//
// needs: RIGHT, lib/f16_parts, lib/line_largest

const THREADS: u32 = 256u;
// Invocations that share a row, and rows of a workgroup.
const SHARERS: u32 = 32u;
const ROWS: u32 = THREADS / SHARERS;

fn element(row: u32, column: u32, exponent: i32) -> f32 {
  if column >= params.columns {
    return 0.0;
  }
  return scaled_number(source[params.offset + row * params.ld + column], exponent);
}

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let row = flat_group(workgroup.id, workgroup.count) * ROWS + lane / SHARERS;
  let sharer = lane % SHARERS;
  let inside = row < params.rows;
  find_largest(lane, sharer, 1u, params.offset + row * params.ld, 1u, select(0u, params.columns, inside));
  workgroupBarrier();
  if !inside {
    return;
  }
  let exponent = line_exponent(sh_largest[lane - sharer]);
  if sharer == 0u {
    exponents[row] = exponent;
  }
  let first = row * 3u * params.pairs;
  for (var pair = sharer; pair < params.pairs; pair += SHARERS) {
    let x = vec2<f32>(element(row, pair * 2u, exponent), element(row, pair * 2u + 1u, exponent));
    let both = parts_of(x);
    let at = first + pair;
    parts[at] = both.x;
    parts[at + params.pairs] = select(both.x, both.y, RIGHT == 1u);
    parts[at + 2u * params.pairs] = select(both.y, both.x, RIGHT == 1u);
  }
}
