// Sums of which LANES neighbouring invocations of a workgroup of THREADS have parts.
//
// needs: ROWS, COLUMNS_PER_GROUP, THREADS, LANES, lib/quant_lines

// The i-th sum of an invocation's lanes is at i * THREADS and the index of the first of them.
var<workgroup> sh: array<f32, ROWS * COLUMNS_PER_GROUP * THREADS>;

// Adds the parts of the lanes in `sh`.
fn add_lanes(parts: Sums, index: u32) {
  var sums = parts;
  for (var i = 0u; i < ROWS * COLUMNS_PER_GROUP; i++) {
    sh[i * THREADS + index] = sums[i];
  }
  for (var half = LANES / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if index % LANES < half {
      for (var i = 0u; i < ROWS * COLUMNS_PER_GROUP; i++) {
        sh[i * THREADS + index] += sh[i * THREADS + index + half];
      }
    }
  }
  workgroupBarrier();
}
