// Reductions across the 256 invocations of a workgroup, split into row groups.
//
// A row group of `size` invocations (a power of two) works on one slice of a tensor. `stride` is the distance
// between its members: 1 where neighbours shall read along the slice; 256 / size, the number of row groups,
// where neighbours shall read from neighbouring slices. Either way neighbouring invocations touch
// neighbouring memory.

// Members that join what the others have; all members read their results.
const JOINING = 16u;

var<workgroup> sh_row_group: array<f32, 256>;
var<workgroup> sh_joined: array<f32, 256>;

struct Invocation {
  @builtin(local_invocation_index) index: u32,
}

fn index_of(invocation: Invocation) -> u32 {
  return invocation.index;
}

// The number of an invocation's row group.
fn row_group_index(lane: u32, size: u32, stride: u32) -> u32 {
  return lane / (size * stride) * stride + lane % stride;
}

// The place of an invocation in its row group.
fn row_group_rank(lane: u32, size: u32, stride: u32) -> u32 {
  return lane / stride % size;
}

// The reduction of the x of all members of a row group, for each of them. `size` has to be the same in the
// whole workgroup, and all of its invocations have to come here.
fn row_group_reduce(op: u32, lane: u32, size: u32, stride: u32, x: f32) -> f32 {
  if size == 1u {
    return x;
  }
  let rank = row_group_rank(lane, size, stride);
  let first = lane - rank * stride;
  sh_row_group[lane] = x;
  workgroupBarrier();
  var result = identity(op);
  if size <= JOINING {
    for (var k = 0u; k < size; k++) {
      result = combine(op, result, sh_row_group[first + k * stride]);
    }
    // Nobody may go on to the next reduction before all have read this one.
    workgroupBarrier();
    return result;
  }
  if rank < JOINING {
    var part = x;
    for (var k = JOINING; k < size; k += JOINING) {
      part = combine(op, part, sh_row_group[lane + k * stride]);
    }
    sh_joined[lane] = part;
  }
  // The next reduction writes sh_joined only behind another barrier.
  workgroupBarrier();
  for (var k = 0u; k < JOINING; k++) {
    result = combine(op, result, sh_joined[first + k * stride]);
  }
  return result;
}
