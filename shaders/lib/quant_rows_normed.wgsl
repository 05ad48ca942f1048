// Rows of A that are normalised by their root mean square on their way into workgroup memory. They are at most
// STAGED_ROWS, and have at most 8 * STAGED elements in all.
//
// needs: a, THREADS, SUBGROUPS, lib/quant_product

const STAGED: u32 = 512u;
const STAGED_ROWS: u32 = 4u;

@group(0) @binding(6) var<storage, read> norm: array<vec4<u32>>;

var<workgroup> sh_rows: array<vec4<u32>, STAGED>;
var<workgroup> sh_squares: array<f32, SUBGROUPS * STAGED_ROWS>;

// A product of such rows has nothing added to it but itself.
fn residual_at(row: u32, column: u32) -> f32 {
  return 0.0;
}

fn square(x: vec2<f32>) -> f32 {
  return dot(x, x);
}

// x · factor · weight of two elements.
fn scaled(x: u32, weight: u32, factor: f32) -> u32 {
  let numbers = unpack2x16float(x) * factor * unpack2x16float(weight);
  // pack2x16float doesn't say how it rounds.
  return pack2x16float(vec2<f32>(vec2<f16>(numbers)));
}

fn prepare_rows(index: u32) {
  let width = params.k / 8u;
  for (var r = 0u; r < params.m; r++) {
    var squares = 0.0;
    for (var i = index; i < width; i += THREADS) {
      let x = a[(params.a + r * params.a_ld) / 8u + i];
      sh_rows[r * width + i] = x;
      squares += square(unpack2x16float(x.x)) + square(unpack2x16float(x.y));
      squares += square(unpack2x16float(x.z)) + square(unpack2x16float(x.w));
    }
    sh_squares[r * SUBGROUPS + index / SUBGROUP] = subgroupAdd(squares);
  }
  workgroupBarrier();
  for (var r = 0u; r < params.m; r++) {
    var squares = 0.0;
    for (var s = 0u; s < SUBGROUPS; s++) {
      squares += sh_squares[r * SUBGROUPS + s];
    }
    let factor = inverseSqrt(squares / f32(params.k) + params.eps);
    for (var i = index; i < width; i += THREADS) {
      let x = sh_rows[r * width + i];
      let weight = norm[params.norm + i];
      sh_rows[r * width + i] = vec4<u32>(
        scaled(x.x, weight.x, factor),
        scaled(x.y, weight.y, factor),
        scaled(x.z, weight.z, factor),
        scaled(x.w, weight.w, factor),
      );
    }
  }
  workgroupBarrier();
}

// Eight elements of a row from the column k on.
fn eight_of_row(row: u32, k: u32) -> vec4<u32> {
  return sh_rows[(row * params.k + k) / 8u];
}
