// The largest magnitude of each line of an f32 matrix, by its bits, which are ordered as magnitudes are. SHARERS
// invocations share a line, each `apart` invocations from the one before.
//
// needs: THREADS, SHARERS, the binding source

// After find_largest, the largest magnitude of a line is at the index of the first invocation that shares it.
var<workgroup> sh_largest: array<u32, THREADS>;

// Finds the largest magnitude of a line, whose first element is at `first`, and each other `step` behind the one before.
// `sharer` counts the invocations that share the line.
fn find_largest(lane: u32, sharer: u32, apart: u32, first: u32, step: u32, elements: u32) {
  var largest = 0u;
  for (var i = sharer; i < elements; i += SHARERS) {
    largest = max(largest, bitcast<u32>(source[first + i * step]) & 0x7fffffffu);
  }
  sh_largest[lane] = largest;
  for (var half = SHARERS / 2u; half > 0u; half /= 2u) {
    workgroupBarrier();
    if sharer < half {
      sh_largest[lane] = max(sh_largest[lane], sh_largest[lane + half * apart]);
    }
  }
}
