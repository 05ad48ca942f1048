// Rows of a normalisation that are written in the type that they are read in, and may be written where they were.
//
// needs: the binding `y`, the vec of a vector

alias Output = V;

fn load_output(i: u32) -> V {
  return y[params.y_offset + i];
}

fn pack_output(numbers: array<A, WIDTH>) -> Output {
  return pack(numbers);
}
