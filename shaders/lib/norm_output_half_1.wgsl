// Rows of f32 whose normalised elements are f16, one by one.
//
// needs: the vec of a vector

alias Output = f16;

fn load_output(i: u32) -> V {
  return V();
}

fn pack_output(numbers: array<A, WIDTH>) -> Output {
  return f16(numbers[0]);
}
