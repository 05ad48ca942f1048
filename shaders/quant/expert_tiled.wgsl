// Products of many rows of A with the matrices of a quantised stack that indices choose for them: rows with one expert
// are multiplied together, after quant/expert_order, and weights are dequantised on their way into workgroup memory.
//
// A workgroup makes a tile of TILE rows of C, which needn't be adjacent, and TILE columns of the product, of which an
// invocation has 4 × 4. A step along k takes the words j of the four blocks of a unit: 32 columns of A, which needn't
// be adjacent either. With GATED, an invocation has two columns of gates and the two that they open.
//
// Beyond the tile's last row and the last column, another one's products are made, but not written.
//
// needs: TA, TC, GATED, GATE, lib/quant_experts, lib/gate, a format, a reader of A

const TILE: u32 = 64u;
const DEPTH: u32 = 32u;
const RESULTS: u32 = TILE >> GATED;

@group(0) @binding(0) var<storage, read> quants: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> high: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<ScaleWords>;
@group(0) @binding(3) var<storage, read> extra: array<u32>;
@group(0) @binding(4) var<storage, read> a: array<AV>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
@group(0) @binding(6) var<storage, read> plan: array<u32>;
@group(0) @binding(7) var<storage, read_write> c: array<TC>;

var<workgroup> sh_a: array<f32, DEPTH * TILE>;
var<workgroup> sh_b: array<f32, DEPTH * TILE>;

// What is added to the product with a row of an expert's matrix, if there is such an expert.
fn bias_of(expert: u32, line: u32) -> f32 {
  if (params.terms & HAS_BIAS) == 0u || expert >= params.experts {
    return 0.0;
  }
  return bias[params.bias + expert * (params.n << GATED) + line];
}

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
  let entry = params.entries + tile / params.tiles_n * 4u;
  let expert = plan[entry] - params.first;
  let is_none = params.first == 0u && plan[entry] == params.experts_of_all;
  let rows = plan[entry + 2u];
  if rows == 0u || !(is_none || expert < params.experts) {
    return;
  }
  let first_pair = params.order + plan[entry + 1u];
  let first_column = tile % params.tiles_n * RESULTS;
  // What an invocation brings: eight numbers of a line of each operand.
  let line = index / 4u;
  let block = index % 4u;
  let row = plan[first_pair + min(line, rows - 1u)] / params.sharing;
  var column = first_column + line;
  if GATED == 1u {
    column = first_column + line / 4u * 2u + line % 2u;
  }
  column = min(column, params.n - 1u);
  if GATED == 1u && (line & 2u) != 0u {
    column += params.n;
  }
  // What it multiplies.
  let y = index / 16u * 4u;
  let x = index % 16u * 4u;

  var sums: array<vec4<f32>, 4>;
  let steps = select(4u * params.units, 0u, is_none);
  for (var step = 0u; step < steps; step++) {
    let unit = step / 4u;
    let j = step % 4u;
    let k = 128u * unit + 32u * block + 8u * j;
    let lo = load_a(row, k);
    let hi = load_a(row, k + 4u);
    let b = expert * (params.n << GATED) + column;
    let w = weights_of(eight(load_quants(b, unit, j), block), scale_of(load_scales(b, unit), block, j));
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
    if y + i < rows {
      let pair = plan[first_pair + y + i];
      if GATED == 1u {
        for (var l = 0u; l < 2u; l++) {
          let at = first_column + x / 2u + l;
          if at < params.n {
            let opened = sums[i][l + 2u] + bias_of(expert, params.n + at);
            put(glu(GATE, sums[i][l] + bias_of(expert, at), opened), pair, at);
          }
        }
      } else {
        for (var l = 0u; l < 4u; l++) {
          let at = first_column + x + l;
          if at < params.n {
            put(sums[i][l] + bias_of(expert, at), pair, at);
          }
        }
      }
    }
  }
}
