// Rows of A that are normalised by their root mean square on their way into workgroup memory. They are at most
// STAGED_ROWS, and have at most 8 * STAGED elements in all, two vectors of eight for each invocation.
//
// needs: a, norm, THREADS, SUBGROUPS, lib/quant_product, elements of a row and their weights (lib/quant_normed_f16 or
// lib/quant_normed_f32)

const STAGED: u32 = min(512u, 2u * THREADS);
const STAGED_ROWS: u32 = 4u;

// Whether rows are in workgroup memory.
const ROWS_STAGED = true;

var<workgroup> sh_rows: array<vec4<u32>, STAGED>;
var<workgroup> sh_squares: array<f32, SUBGROUPS * STAGED_ROWS>;

// What an invocation normalises.
struct HeldRows {
  low: HeldEight,
  high: HeldEight,
}

// The vector `i` of all rows, of which the last stands for those beyond it.
fn load_eight(i: u32) -> HeldEight {
  let width = params.k / 8u;
  let at = min(i, params.m * width - 1u);
  return held_eight(params.a + at / width * params.a_ld + at % width * 8u, params.norm + at % width * 8u);
}

fn load_rows(index: u32) -> HeldRows {
  let low = load_eight(index);
  if THREADS >= STAGED {
    return HeldRows(low, HeldEight());
  }
  return HeldRows(low, load_eight(index + THREADS));
}

// Writes the vector `i` of all rows, normalised.
fn put_normalised(held: HeldEight, i: u32) {
  let width = params.k / 8u;
  if i >= params.m * width {
    return;
  }
  let row = i / width;
  var squares = 0.0;
  for (var s = 0u; s < SUBGROUPS; s++) {
    squares += sh_squares[row * SUBGROUPS + s];
  }
  let factor = inverseSqrt(squares / f32(params.k) + params.eps);
  sh_rows[i] = normalised(held, factor);
}

fn prepare_rows(index: u32, held: HeldRows) {
  let width = params.k / 8u;
  let low = squares_of(held.low);
  let high = squares_of(held.high);
  for (var row = 0u; row < params.m; row++) {
    var squares = select(0.0, low, index / width == row);
    if THREADS < STAGED {
      squares += select(0.0, high, (index + THREADS) / width == row);
    }
    sh_squares[row * SUBGROUPS + index / SUBGROUP] = subgroupAdd(squares);
  }
  workgroupBarrier();
  put_normalised(held.low, index);
  if THREADS < STAGED {
    put_normalised(held.high, index + THREADS);
  }
  workgroupBarrier();
}

// The vector `i` of eight elements of a row.
fn eight_of_row(row: u32, i: u32) -> vec4<u32> {
  return sh_rows[row * (params.k / 8u) + i];
}
