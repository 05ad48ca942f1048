// A tile of TILE × TILE products of rows of A and of a quantised B, which is dequantised on its way into workgroup
// memory. An invocation of 256 has 4 × 4 of them.
//
// needs: a format, a reader of A

const TILE: u32 = 64u;
const DEPTH: u32 = 32u;

var<workgroup> sh_a: array<f32, DEPTH * TILE>;
var<workgroup> sh_b: array<f32, DEPTH * TILE>;

// The first of the rows and columns of the tile that an invocation has.
fn origin_of(index: u32) -> vec2<u32> {
  return vec2<u32>(index / 16u, index % 16u) * 4u;
}

// Adds products along the words j of the four blocks of a unit: 32 columns of A, which needn't be adjacent. An
// invocation brings eight numbers of a row of each operand, for the line `index / 4` of the tile.
fn add_products(step: u32, row_a: u32, row_b: u32, index: u32, sums: ptr<function, array<vec4<f32>, 4>>) {
  let line = index / 4u;
  let block = index % 4u;
  let unit = step / 4u;
  let j = step % 4u;
  let k = 128u * unit + 32u * block + 8u * j;
  let lo = load_a(row_a, k);
  let hi = load_a(row_a, k + 4u);
  let w = weights_of(eight(load_quants(row_b, unit, j), block), scale_of(load_scales(row_b, unit), block, j));
  workgroupBarrier();
  for (var i = 0u; i < 4u; i++) {
    sh_a[(8u * block + i) * TILE + line] = lo[i];
    sh_a[(8u * block + 4u + i) * TILE + line] = hi[i];
    // Padding may hold anything finite, and what isn't finite may not meet the zeros of A there.
    sh_b[(8u * block + i) * TILE + line] = select(0.0, w.lo[i], k + i < params.k);
    sh_b[(8u * block + 4u + i) * TILE + line] = select(0.0, w.hi[i], k + 4u + i < params.k);
  }
  workgroupBarrier();
  let origin = origin_of(index);
  for (var d = 0u; d < DEPTH; d++) {
    let at = d * TILE + origin.y;
    let b = vec4<f32>(sh_b[at], sh_b[at + 1u], sh_b[at + 2u], sh_b[at + 3u]);
    for (var i = 0u; i < 4u; i++) {
      (*sums)[i] += sh_a[d * TILE + origin.x + i] * b;
    }
  }
}
