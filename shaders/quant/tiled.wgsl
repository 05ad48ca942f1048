// C = residual + activation(alpha · A · Bᵀ + bias) for many rows of A and a quantised B, which is dequantised
// on its way into workgroup memory.
//
// A workgroup makes a tile of TILE × TILE results, an invocation 4 × 4 of them. A step along k takes the words
// j of the four blocks of a unit: 32 columns of A, which needn't be adjacent.
//
// Beyond the last row and column, another one's products are made, but not written.
//
// needs: TA, TC, ACTIVATION, lib/quant_product, a format, a reader of A

const TILE: u32 = 64u;
const DEPTH: u32 = 32u;

@group(0) @binding(0) var<storage, read> quants: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> high: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<ScaleWords>;
@group(0) @binding(3) var<storage, read> extra: array<u32>;
@group(0) @binding(4) var<storage, read> a: array<AV>;
@group(0) @binding(5) var<storage, read> bias: array<TC>;
@group(0) @binding(7) var<storage, read_write> c: array<TC>;

var<workgroup> sh_a: array<f32, DEPTH * TILE>;
var<workgroup> sh_b: array<f32, DEPTH * TILE>;

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let tile = flat_group(workgroup, workgroups);
  if tile >= params.tiles {
    return;
  }
  let first_row = tile / params.tiles_n * TILE;
  let first_column = tile % params.tiles_n * TILE;
  // What an invocation brings: eight numbers of a line of each operand.
  let line = index / 4u;
  let block = index % 4u;
  let row = min(first_row + line, params.m - 1u);
  let column = min(first_column + line, params.n - 1u);
  // What it multiplies.
  let y = index / 16u * 4u;
  let x = index % 16u * 4u;

  var sums: array<vec4<f32>, 4>;
  for (var step = 0u; step < 4u * params.units; step++) {
    let unit = step / 4u;
    let j = step % 4u;
    let k = 128u * unit + 32u * block + 8u * j;
    let lo = load_a(row, k);
    let hi = load_a(row, k + 4u);
    let w = weights_of(eight(load_quants(column, unit, j), block), scale_of(load_scales(column, unit), block, j));
    workgroupBarrier();
    for (var i = 0u; i < 4u; i++) {
      sh_a[(8u * block + i) * TILE + line] = lo[i];
      sh_a[(8u * block + 4u + i) * TILE + line] = hi[i];
      // Padding may hold anything finite, and what isn't finite may not meet the zeros of A there.
      sh_b[(8u * block + i) * TILE + line] = select(0.0, w.lo[i], k + i < params.k);
      sh_b[(8u * block + 4u + i) * TILE + line] = select(0.0, w.hi[i], k + 4u + i < params.k);
    }
    workgroupBarrier();
    for (var d = 0u; d < DEPTH; d++) {
      let at = d * TILE + x;
      let b = vec4<f32>(sh_b[at], sh_b[at + 1u], sh_b[at + 2u], sh_b[at + 3u]);
      for (var i = 0u; i < 4u; i++) {
        sums[i] += sh_a[d * TILE + y + i] * b;
      }
    }
  }

  for (var i = 0u; i < 4u; i++) {
    for (var l = 0u; l < 4u; l++) {
      if first_row + y + i < params.m && first_column + x + l < params.n {
        finish(sums[i][l], first_row + y + i, first_column + x + l);
      }
    }
  }
}
