// Products of few rows of A with rows of a quantised B, of which LANES invocations make parts: each reads 16
// bytes of quants, the words j of the four blocks of a unit, its neighbours what follows. Scales are applied to
// the sums of blocks.
//
// needs: ROWS, COLUMNS_PER_GROUP, LANES, lib/quant_product, a format, a reader of A

// A lane's parts of the products of ROWS rows of A with COLUMNS_PER_GROUP of B, those of one row of A side by side. Beyond
// the last row of A, they are another one's.
fn sums_of_lane(first_row: u32, lines: Lines, lane: u32) -> Sums {
  var sums: Sums;
  for (var step = lane; step < 4u * params.units; step += LANES) {
    let unit = step / 4u;
    let j = step % 4u;
    var q: array<Quants, COLUMNS_PER_GROUP>;
    var s: array<Scales, COLUMNS_PER_GROUP>;
    for (var x = 0u; x < COLUMNS_PER_GROUP; x++) {
      q[x] = load_quants(lines[x], unit, j);
      s[x] = load_scales(lines[x], unit);
    }
    for (var block = 0u; block < 4u; block++) {
      let k = 128u * unit + 32u * block + 8u * j;
      var w: array<Eight, COLUMNS_PER_GROUP>;
      var by: array<Scale, COLUMNS_PER_GROUP>;
      for (var x = 0u; x < COLUMNS_PER_GROUP; x++) {
        by[x] = scale_of(s[x], block, j);
        let numbers = eight(q[x], block);
        w[x] = Eight(numbers.lo - by[x].zero, numbers.hi - by[x].zero);
      }
      for (var r = 0u; r < ROWS; r++) {
        let row = min(first_row + r, params.m - 1u);
        let lo = load_a(row, k);
        let hi = load_a(row, k + 4u);
        for (var x = 0u; x < COLUMNS_PER_GROUP; x++) {
          var part = by[x].scale * (dot(lo, w[x].lo) + dot(hi, w[x].hi));
          if HAS_MIN {
            part -= by[x].min * (dot(lo, vec4<f32>(1.0)) + dot(hi, vec4<f32>(1.0)));
          }
          // In padding there is nothing, whatever its scale.
          sums[r * COLUMNS_PER_GROUP + x] += select(0.0, part, k < params.k);
        }
      }
    }
  }
  return sums;
}
