// The position of each pooling window's maximum, y * width + x in its image; 0xffffffff for a window in the
// padding alone.
//
// needs: T, OP (0), lib/invocation_range, lib/pool_input

fn make_output(i: u32) {
  let best = largest(place_of(i, params.out_height, params.out_width));
  let is_none = best.y == 0xffffffffu;
  positions[params.output_offset + i] = select(best.y * params.width + best.x, 0xffffffffu, is_none);
}
