// The largest magnitude of each line of an f32 matrix, by its bits, which are ordered as magnitudes are. SHARERS
// invocations share a line, each `apart` invocations from the one before.
//
// needs: THREADS, SHARERS, the binding source

// Of a line, where its first sharer is.
var<workgroup> sh_largest: array<u32, THREADS>;

// Finds it among the elements of a line, of which the first is at `first` and each `step` from the one before.
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
