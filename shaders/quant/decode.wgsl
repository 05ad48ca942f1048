// C = residual + activation(alpha · A · Bᵀ + bias) for few rows of A and a quantised B: what takes the time is
// reading B once.
//
// A workgroup makes ROWS rows and COLUMNS columns of C. LANES invocations share SPAN rows of B, and add their
// parts in workgroup memory.
//
// needs: TA, TC, ROWS, SPAN, ACTIVATION, lib/quant_product, lib/quant_sums, a format, a reader of A

const THREADS: u32 = 128u;
const LANES: u32 = 32u;
const COLUMNS: u32 = THREADS / LANES * SPAN;

@group(0) @binding(0) var<storage, read> quants: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> high: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<ScaleWords>;
@group(0) @binding(3) var<storage, read> extra: array<u32>;
@group(0) @binding(4) var<storage, read> a: array<AV>;
@group(0) @binding(5) var<storage, read> bias: array<TC>;
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

  var sums = sums_of_lane(first_row, lines_from(column), lane);
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
