// C = activation(alpha · sum + beta · C + bias), with the sum of partial products that lie one after another
// as packed m × n matrices. They are added in order, so that the result is always the same.
//
// needs: TC, ACTIVATION, lib/matmul, lib/line_exponents or lib/no_line_exponents

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let i = flat_group(workgroup.id, workgroup.count) * 256u + lane;
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
  c[at] = finish(unscaled(sum, row, column), row, column, at);
}
