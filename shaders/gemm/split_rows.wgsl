// Splits an f32 matrix whose columns follow each other along k into parts of f16 (lib/f16_parts), and finds the exponents
// of its rows. In each row lie three rows one after another: of the first, the first and the second parts for a left
// operand, of the first, the second and the first parts for a right one, as gemm/split_columns lays out matrices. What
// lies beyond a row is 0.
//
// A workgroup takes 8 rows, each by 32 invocations, which read it twice: it is in the cache the second time.
//
// needs: RIGHT, lib/f16_parts

const THREADS: u32 = 256u;
// Invocations that share a row, and rows of a workgroup.
const SHARERS: u32 = 32u;
const ROWS: u32 = THREADS / SHARERS;

var<workgroup> sh_largest: array<u32, THREADS>;

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
  let end = select(0u, params.columns, inside);
  var largest = 0u;
  for (var column = sharer; column < end; column += SHARERS) {
    largest = max(largest, bitcast<u32>(source[params.offset + row * params.ld + column]) & 0x7fffffffu);
  }
  sh_largest[lane] = largest;
  for (var half = SHARERS / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if sharer < half {
      sh_largest[lane] = max(sh_largest[lane], sh_largest[lane + half]);
    }
  }
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
