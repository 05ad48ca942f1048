// The position of each pooling window's maximum, y * width + x in its image; 0xffffffff for a window in the
// padding alone.
//
// needs: T, OP (0), lib/pool_input

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let i = params.first + flat_group(workgroup.id, workgroup.count) * 256u + lane;
  if i >= params.total {
    return;
  }
  let best = largest(place_of(i, params.out_height, params.out_width));
  let is_none = best.y == 0xffffffffu;
  positions[params.output_offset + i] = select(best.y * params.width + best.x, 0xffffffffu, is_none);
}
