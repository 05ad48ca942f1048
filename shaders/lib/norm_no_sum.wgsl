// The sum input + residual of a normalisation, where nobody asked for it.
//
// needs: the vec of a vector, the output

fn load_sum(i: u32) -> V {
  return V();
}

fn store_sum(i: u32, numbers: array<A, WIDTH>) {}

fn add_result(i: u32, result: Output) {}
