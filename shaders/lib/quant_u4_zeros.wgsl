// Units of U4 with zero points.
//
// needs: lib/quant_four, lib/quant_group_scales, scales, extra, params with the planes

fn scale_of(s: Scales, block: u32, j: u32) -> Scale {
  let number = ((s.half + 2u * block + j / 2u) * 16u) >> params.group;
  let zero = (extra[s.zeros + number / 4u] >> (8u * (number % 4u))) & 255u;
  return Scale(half_of(unpack2x16float(scales[s.scales + number / 2u]), number), f32(zero), 0.0);
}
