// Results of a convolution whose sums were made in slices: activation(Σ slices + bias). The slices are added
// in order, so that the result is always the same.
//
// needs: T, ACTIVATION, lib/invocation_outputs

fn make_output(i: u32) {
  var sum = 0.0;
  for (var slice = 0u; slice < params.slices; slice++) {
    sum += partial[slice * params.total + i];
  }
  if params.biased == 1u {
    sum += f32(bias[params.bias_offset + i / params.pixels % params.filters]);
  }
  output[params.output_offset + i] = T(activate(ACTIVATION, sum));
}
