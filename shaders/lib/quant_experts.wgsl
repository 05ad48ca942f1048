// The results of products with experts.
//
// needs: TC, c, params with the place of C

const IS_SUM: u32 = 1u;
const ADDS: u32 = 2u;
const HAS_BIAS: u32 = 4u;

// Writes an element of C, or adds to it.
fn put(x: f32, row: u32, column: u32) {
  let at = params.c + row * params.c_ld + column;
  var v = x;
  if (params.terms & ADDS) != 0u {
    v += f32(c[at]);
  }
  c[at] = TC(v);
}
