// What the kernels of products with experts on tensor cores share: the rows of B of a tile, and the sums of its subgroups.
//
// needs: SUBGROUPS, ROWS, GATED, params

const SUBGROUP: u32 = 32u;
const THREADS: u32 = SUBGROUPS * SUBGROUP;
const COLUMNS: u32 = 16u;
// Columns of C.
const RESULTS: u32 = COLUMNS >> GATED;
const PERSISTENT: u32 = 0u;

// The sums of each subgroup, row by row of C.
var<workgroup> sh: array<f32, SUBGROUPS * ROWS * COLUMNS>;

// The rows of B of the invocations of a line of fragments, for the columns from `column` on of a product with the matrix that begins
// with row `matrix`: they lie eight apart, or are a gate's and the one that it opens.
fn lines_of_matrix(matrix: u32, column: u32, line: u32) -> vec2<u32> {
  let rows = matrix + min(column + vec2<u32>(line, line + 8u), vec2<u32>(params.n - 1u));
  if GATED == 1u {
    return vec2<u32>(rows.x, rows.x + params.n);
  }
  return rows;
}

fn sum_of_subgroups(at: u32) -> f32 {
  var sum = 0.0;
  for (var s = 0u; s < SUBGROUPS; s++) {
    sum += sh[s * ROWS * COLUMNS + at];
  }
  return sum;
}
