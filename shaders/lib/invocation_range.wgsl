// The entry point of kernels each of whose invocations makes one of the outputs from `params.first` to `params.total`,
// independently of the others.
//
// needs: make_output, which makes the output of a number

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let i = params.first + flat_group(workgroup.id, workgroup.count) * 256u + lane;
  if i < params.total {
    make_output(i);
  }
}
