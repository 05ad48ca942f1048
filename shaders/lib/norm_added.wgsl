// Results of a normalisation that are also added to other rows of their type, as a block's output is to the residual stream.
//
// needs: the binding `sums`, the vec of a vector, the output

fn load_sum(i: u32) -> V {
  return V();
}

fn store_sum(i: u32, numbers: array<A, WIDTH>) {}

fn add_result(i: u32, result: Output) {
  sums[params.sum_offset + i] += result;
}
