// The entry point of kernels whose invocations make an output each, without each other's help.
//
// needs: make_output, which makes the output of this number, of `params.total`

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let i = flat_group(workgroup.id, workgroup.count) * 256u + lane;
  if i < params.total {
    make_output(i);
  }
}
