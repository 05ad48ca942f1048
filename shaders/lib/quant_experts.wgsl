// The results of products with experts.
//
// needs: TC, c, params with the place of C

const IS_SUM: u32 = 1u;
const ADDS: u32 = 2u;
const HAS_BIAS: u32 = 4u;

// What the element of C at (row, column) is added to.
fn added_at(row: u32, column: u32) -> f32 {
  if (params.terms & ADDS) == 0u {
    return 0.0;
  }
  return f32(c[params.c + row * params.c_ld + column]);
}

// Writes an element of C, of which `added` is what the product is added to.
fn store_sum(x: f32, added: f32, row: u32, column: u32) {
  let v = select(x, x + added, (params.terms & ADDS) != 0u);
  c[params.c + row * params.c_ld + column] = TC(v);
}

// Writes an element of C, or adds to it.
fn put(x: f32, row: u32, column: u32) {
  store_sum(x, added_at(row, column), row, column);
}
