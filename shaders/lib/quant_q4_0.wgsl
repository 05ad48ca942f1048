// Units of Q4_0.
//
// needs: lib/quant_low, lib/quant_block_scales

const HAS_MIN = false;

fn scale_of(s: Scales, block: u32, j: u32) -> Scale {
  return Scale(half_of(unpack2x16float(s.words[block / 2u]), block), 8.0, 0.0);
}
