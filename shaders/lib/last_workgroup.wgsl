// Whether a workgroup is the last one to be done of some that each have a part of a result: the last one may read what all of them
// have written, so that no launch of its own has to (CUDA's threadFenceReduction).
//
// The order of memory between workgroups comes from `storageBarrier`, whose scope in SPIR-V is the device; WGSL promises
// that of the workgroup alone, so this is for devices with such barriers. Parts are atomic, too: other accesses may stay
// in a compute unit's cache. A counter is 0 between launches, as each workgroup of a grid counts once and the last one
// takes the counter back.
//
// needs: fixup, an array of atomic words, which begins with the counters

// Counters, which come before the parts.
const COUNTERS: u32 = 1024u;

var<workgroup> sh_is_last: u32;

// Counts a workgroup, of so many that share the counter. All of its invocations have to come here, each with its own index.
fn is_last_workgroup(counter: u32, workgroups: u32, index: u32) -> bool {
  // What the workgroup's invocations have written comes before its count.
  storageBarrier();
  if index == 0u {
    let is_last = atomicAdd(&fixup[counter], 1u) + 1u == workgroups;
    if is_last {
      atomicStore(&fixup[counter], 0u);
    }
    sh_is_last = u32(is_last);
  }
  if workgroupUniformLoad(&sh_is_last) == 0u {
    return false;
  }
  // What other workgroups have written before they counted is read after this.
  storageBarrier();
  return true;
}
