// The sum input + residual of a normalisation, which is written, and may be where one of the two was.
//
// needs: the binding `sums`, the vec of a vector

fn load_sum(i: u32) -> V {
  return sums[params.sum_offset + i];
}

fn store_sum(i: u32, numbers: array<A, WIDTH>) {
  sums[params.sum_offset + i] = pack(numbers);
}
