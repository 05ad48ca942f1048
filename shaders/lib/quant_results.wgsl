// Elements of the product on their way to C.
//
// needs: ACTIVATION, lib/quant_product

// Whether an element is made with its neighbour's sum.
const PAIRED = false;

// What is added to an element.
alias Ahead = f32;

// What an element needs besides the product, which may be on its way while that is made.
fn read_ahead(row: u32, column: u32) -> Ahead {
  return added_at(row, column);
}

// Writes the element at (row, column), made of the sum there.
fn finish_element(sum: f32, neighbour: f32, ahead: Ahead, row: u32, column: u32) {
  store_sum(activate(ACTIVATION, biased(sum, column)), ahead, row, column);
}
