// C = residual + activation(alpha · A · Bᵀ + bias) for few rows of A and a quantised B: what takes the time is
// reading B once.
//
// A workgroup makes ROWS rows and COLUMNS columns of C. LANES invocations share SPAN rows of B: each reads 16
// bytes of quants, the words j of the four blocks of a unit, its neighbours what follows, and they add their
// parts at the end. Scales are applied to the sums of blocks.
//
// Beyond the last row and column, another one's products are made, but not written.
//
// needs: TA, TC, ROWS, SPAN, ACTIVATION, lib/quant_product, a format, a reader of A

const THREADS: u32 = 128u;
const LANES: u32 = 32u;
const COLUMNS: u32 = THREADS / LANES * SPAN;

@group(0) @binding(0) var<storage, read> quants: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> high: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> extra: array<u32>;
@group(0) @binding(4) var<storage, read> a: array<AV>;
@group(0) @binding(5) var<storage, read> bias: array<TC>;
@group(0) @binding(6) var<storage, read> residual: array<TC>;
@group(0) @binding(7) var<storage, read_write> c: array<TC>;

var<workgroup> sh: array<f32, ROWS * SPAN * THREADS>;

@compute @workgroup_size(THREADS)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) index: u32,
) {
  let tile = flat_group(workgroup, workgroups);
  if tile >= params.tiles {
    return;
  }
  let first_row = tile / params.tiles_n * ROWS;
  let first_column = tile % params.tiles_n * COLUMNS;
  let lane = index % LANES;
  let column = first_column + index / LANES * SPAN;

  var sums: array<f32, ROWS * SPAN>;
  for (var step = lane; step < 4u * params.units; step += LANES) {
    let unit = step / 4u;
    let j = step % 4u;
    var q: array<Quants, SPAN>;
    var s: array<Scales, SPAN>;
    for (var x = 0u; x < SPAN; x++) {
      let row = min(column + x, params.n - 1u);
      q[x] = load_quants(row, unit, j);
      s[x] = load_scales(row, unit);
    }
    for (var block = 0u; block < 4u; block++) {
      let k = 128u * unit + 32u * block + 8u * j;
      var w: array<Eight, SPAN>;
      var by: array<Scale, SPAN>;
      for (var x = 0u; x < SPAN; x++) {
        by[x] = scale_of(s[x], block, j);
        let numbers = eight(q[x], block);
        w[x] = Eight(numbers.lo - by[x].zero, numbers.hi - by[x].zero);
      }
      for (var r = 0u; r < ROWS; r++) {
        let row = min(first_row + r, params.m - 1u);
        let lo = load_a(row, k);
        let hi = load_a(row, k + 4u);
        for (var x = 0u; x < SPAN; x++) {
          var part = by[x].scale * (dot(lo, w[x].lo) + dot(hi, w[x].hi));
          if HAS_MIN {
            part -= by[x].min * (dot(lo, vec4<f32>(1.0)) + dot(hi, vec4<f32>(1.0)));
          }
          sums[r * SPAN + x] += part;
        }
      }
    }
  }

  for (var i = 0u; i < ROWS * SPAN; i++) {
    sh[i * THREADS + index] = sums[i];
  }
  for (var half = LANES / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if lane < half {
      for (var i = 0u; i < ROWS * SPAN; i++) {
        sh[i * THREADS + index] += sh[i * THREADS + index + half];
      }
    }
  }
  workgroupBarrier();
  // Neighbours write neighbouring columns.
  let x = index % COLUMNS;
  let r = index / COLUMNS;
  if r < ROWS && first_row + r < params.m && first_column + x < params.n {
    finish(sh[(r * SPAN + x % SPAN) * THREADS + x / SPAN * LANES], first_row + r, first_column + x);
  }
}
