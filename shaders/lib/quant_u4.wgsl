// Units of U4, whose zero point is 8.
//
// needs: lib/quant_four, lib/quant_group_scales, scales, params with the planes

fn scale_of(s: Scales, block: u32, j: u32) -> Scale {
  let number = ((s.half + 2u * block + j / 2u) * 16u) >> params.group;
  return Scale(half_of(unpack2x16float(scales[s.scales + number / 2u]), number), 8.0, 0.0);
}
