// Rows of f32 whose normalised elements are f16, in vectors of four.
//
// needs: the vec of a vector

alias Output = vec4<f16>;

fn load_output(i: u32) -> V {
  return V();
}

fn pack_output(numbers: array<A, WIDTH>) -> Output {
  return Output(vec4<f32>(numbers[0], numbers[1], numbers[2], numbers[3]));
}
