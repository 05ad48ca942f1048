// The sum input + residual of a normalisation, which is written, and may be where one of the two was.
//
// needs: the binding `sums`, the vec of a vector, the output

fn load_sum(i: u32) -> V {
  return sums[params.sum_offset + i];
}

fn store_sum(i: u32, numbers: array<A, WIDTH>) {
  sums[params.sum_offset + i] = pack(numbers);
}

fn add_result(i: u32, result: Output) {}
