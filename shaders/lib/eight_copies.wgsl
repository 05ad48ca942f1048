// The entry point of copies of images and of filters to where eight channels are adjacent, eight channels by each invocation.
// Filters have the workgroups after those of the images.
//
// needs: copy_image and copy_filter, which copy the eight channels of a number

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let flat = flat_group(workgroup.id, workgroup.count);
  if flat < params.first_filters {
    let i = flat * 256u + lane;
    if i < params.total {
      copy_image(i);
    }
  } else {
    let i = (flat - params.first_filters) * 256u + lane;
    if i < params.total_filters {
      copy_filter(i);
    }
  }
}
