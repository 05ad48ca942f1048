// y = (x − mean) / √(variance + eps) · weight + bias with one mean, variance, weight and bias for each
// channel.
//
// needs: T, W (the type of statistics and weights), lib/vectors_ahead and what it needs

alias A = f32;

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let first = flat_group(workgroup.id, workgroup.count) * 256u * AHEAD + lane;
  var vectors = fetch_ahead(first);
  for (var j = 0u; j < AHEAD; j++) {
    let i = first + j * 256u;
    if i < params.vectors {
      let c = i / params.spatial % params.channels;
      let centre = f32(mean[params.mean_offset + c]);
      let scale = inverseSqrt(f32(variance[params.variance_offset + c]) + params.eps);
      var factor = 1.0;
      var summand = 0.0;
      if (params.scaled & 1u) != 0u {
        factor = f32(weight[params.weight_offset + c]);
      }
      if (params.scaled & 2u) != 0u {
        summand = f32(bias[params.bias_offset + c]);
      }
      var numbers = unpack(vectors[j]);
      for (var l = 0u; l < WIDTH; l++) {
        numbers[l] = (numbers[l] - centre) * scale * factor + summand;
      }
      y[params.y_offset + i] = pack(numbers);
    }
  }
}
