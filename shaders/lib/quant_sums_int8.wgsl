// Products of few rows of A, rounded by quant/quantize_rows, with rows of a quantised B, of which LANES invocations
// make parts: each reads 16 bytes of quants, the words j of the four blocks of a unit, its neighbours what follows.
// Products of the integers of a word are summed exactly.
//
// needs: ROWS, COLUMNS_PER_GROUP, LANES, lib/quant_product, a format and the bytes of its quants

alias AV = vec4<u32>;

// The integers of the words j of the four blocks of a unit: the first and the last four of each.
struct Bytes {
  first: vec4<u32>,
  last: vec4<u32>,
}

// Of the four words, the scales of weights, and what is subtracted for each integer that they are multiplied by.
struct WordScales {
  scale: vec4<f32>,
  offset: vec4<f32>,
}

fn word_scales(s: Scales, j: u32) -> WordScales {
  let x = scale_of(s, 0u, j);
  let y = scale_of(s, 1u, j);
  let z = scale_of(s, 2u, j);
  let w = scale_of(s, 3u, j);
  let scale = vec4<f32>(x.scale, y.scale, z.scale, w.scale);
  let zero = vec4<f32>(x.zero, y.zero, z.zero, w.zero);
  let min = vec4<f32>(x.min, y.min, z.min, w.min);
  // An infinite scale times no zero point would be NaN.
  return WordScales(scale, select(min, scale * zero + min, zero > vec4<f32>()));
}

fn dots(x: vec4<u32>, y: vec4<u32>) -> vec4<i32> {
  return vec4<i32>(
    dot4I8Packed(x.x, y.x),
    dot4I8Packed(x.y, y.y),
    dot4I8Packed(x.z, y.z),
    dot4I8Packed(x.w, y.w),
  );
}

// A lane's parts of the products of ROWS rows of A with COLUMNS_PER_GROUP of B, those of one row of A side by side. Beyond
// the last row of A, they are another one's.
fn sums_of_lane(first_row: u32, lines: Lines, lane: u32) -> Sums {
  var sums: Sums;
  for (var step = lane; step < 4u * params.units; step += LANES) {
    let unit = step / 4u;
    let j = step % 4u;
    var bytes: array<Bytes, COLUMNS_PER_GROUP>;
    var by: array<WordScales, COLUMNS_PER_GROUP>;
    for (var x = 0u; x < COLUMNS_PER_GROUP; x++) {
      bytes[x] = bytes_of(load_quants(lines[x], unit, j));
      by[x] = word_scales(load_scales(lines[x], unit), j);
    }
    // In blocks of padding there is nothing, whatever their scales. Of a block that begins before, every word subtracts
    // its quarter.
    let inside = vec4<u32>(0u, 32u, 64u, 96u) + vec4<u32>(128u * unit) < vec4<u32>(params.k);
    for (var r = 0u; r < ROWS; r++) {
      let at = params.a / 4u + min(first_row + r, params.m - 1u) * params.a_ld + 10u * unit;
      let first = a[at + 2u * j];
      let last = a[at + 2u * j + 1u];
      let scale = bitcast<vec4<f32>>(a[at + 8u]);
      for (var x = 0u; x < COLUMNS_PER_GROUP; x++) {
        var parts = by[x].scale * vec4<f32>(dots(first, bytes[x].first) + dots(last, bytes[x].last));
        if HAS_OFFSET {
          parts -= by[x].offset * bitcast<vec4<f32>>(a[at + 9u]);
        }
        let terms = select(vec4<f32>(), scale * parts, inside);
        sums[r * COLUMNS_PER_GROUP + x] += (terms.x + terms.y) + (terms.z + terms.w);
      }
    }
  }
  return sums;
}
