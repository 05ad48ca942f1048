// C = activation(alpha · sum + beta · C + bias), with the sum of partial products that lie one after another as packed
// m × n matrices. They are added in order, so that the result is always the same.
//
// needs: TC, ACTIVATION, lib/matmul

@group(0) @binding(0) var<storage, read> partial: array<f32>;
@group(0) @binding(1) var<storage, read> bias: array<TC>;
@group(0) @binding(2) var<storage, read_write> c: array<TC>;

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let i = flat_group(group, groups) * 256u + lane;
  let count = params.m * params.n;
  if i >= count {
    return;
  }
  var sum = 0.0;
  for (var piece = 0u; piece < params.batch; piece++) {
    sum += partial[piece * count + i];
  }
  let row = i / params.n;
  let column = i % params.n;
  let at = params.c_offset + row * params.c_ld + column;
  c[at] = finish(sum, row, column, at);
}
