// The sum input + residual of a normalisation, which is written, and may be where one of the two was.
//
// needs: SUM_BINDING, the vec of a vector

@group(0) @binding(SUM_BINDING) var<storage, read_write> sums: array<V>;

fn load_sum(i: u32) -> V {
  return sums[params.sum_offset + i];
}

fn store_sum(i: u32, numbers: array<A, WIDTH>) {
  sums[params.sum_offset + i] = pack(numbers);
}
