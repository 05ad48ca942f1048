// The scales of groups.
//
// needs: lib/quant_nibbles, params with the planes

const HAS_MIN = false;

// Where the scales and zero points of a row begin, and the first half block of a unit.
struct Scales {
  scales: u32,
  zeros: u32,
  half: u32,
}

fn load_scales(row: u32, unit: u32) -> Scales {
  let scales_at = params.scales + row * params.scales_row;
  return Scales(scales_at, params.extra + row * params.extra_row, 8u * unit);
}
