// Rows of A that are normalised by their root mean square on their way into workgroup memory. They are at most
// STAGED_ROWS, and have at most 8 * STAGED elements in all, two vectors of eight for each invocation.
//
// needs: a, norm, THREADS, SUBGROUPS, lib/quant_product

const STAGED: u32 = min(512u, 2u * THREADS);
const STAGED_ROWS: u32 = 4u;

// Whether rows are in workgroup memory.
const ROWS_STAGED = true;

var<workgroup> sh_rows: array<vec4<u32>, STAGED>;
var<workgroup> sh_squares: array<f32, SUBGROUPS * STAGED_ROWS>;

fn square(x: vec2<f32>) -> f32 {
  return dot(x, x);
}

// x · factor · weight of two elements.
fn scaled(x: u32, weight: u32, factor: f32) -> u32 {
  let numbers = unpack2x16float(x) * factor * unpack2x16float(weight);
  // pack2x16float doesn't say how it rounds.
  return pack2x16float(vec2<f32>(vec2<f16>(numbers)));
}

// Eight neighbouring elements of a row, and their weights.
struct HeldEight {
  x: vec4<u32>,
  weight: vec4<u32>,
}

// What an invocation normalises.
struct HeldRows {
  low: HeldEight,
  high: HeldEight,
}

// The vector `i` of all rows, of which the last stands for those beyond it.
fn load_eight(i: u32) -> HeldEight {
  let width = params.k / 8u;
  let at = min(i, params.m * width - 1u);
  return HeldEight(a[(params.a + at / width * params.a_ld) / 8u + at % width], norm[params.norm + at % width]);
}

fn load_rows(index: u32) -> HeldRows {
  let low = load_eight(index);
  if THREADS >= STAGED {
    return HeldRows(low, HeldEight());
  }
  return HeldRows(low, load_eight(index + THREADS));
}

fn squares_of(x: vec4<u32>) -> f32 {
  let first = square(unpack2x16float(x.x)) + square(unpack2x16float(x.y));
  return first + square(unpack2x16float(x.z)) + square(unpack2x16float(x.w));
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
  sh_rows[i] = vec4<u32>(
    scaled(held.x.x, held.weight.x, factor),
    scaled(held.x.y, held.weight.y, factor),
    scaled(held.x.z, held.weight.z, factor),
    scaled(held.x.w, held.weight.w, factor),
  );
}

fn prepare_rows(index: u32, held: HeldRows) {
  let width = params.k / 8u;
  let low = squares_of(held.low.x);
  let high = squares_of(held.high.x);
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
