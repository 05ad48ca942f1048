// y[.., i, ..] = Σ x[.., k, ..] over k ≤ i along an axis; over k < i if exclusive; over k ≥ i or k > i if in
// reverse.
//
// A row group of invocations takes a tile of each slice at a time, every member some neighbours of it.
// Members add the sums of those before them (Hillis and Steele, "Data parallel algorithms", 1986) and the row
// group what earlier tiles have come to. Long slices are cut into chunks, one for each workgroup along z,
// with the sums before each in `carry`.
//
// needs: T, A, IN_PLACE

// Neighbours of an invocation.
const SHARE = 4u;

var<workgroup> sh_sums: array<A, 256>;

fn fetch(i: u32) -> A {
  if IN_PLACE == 1u {
    return A(y[params.y_offset + i]);
  }
  return A(x[params.x_offset + i]);
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let row_group = params.row_group;
  let stride = params.stride;
  let inner = params.inner;
  let rank = lane / stride % row_group;
  let in_group = lane / (row_group * stride) * stride + lane % stride;
  let slice = flat_group(workgroup.id, workgroup.count) * (256u / row_group) + in_group;
  let inside = slice < params.slices;
  let first = workgroup.id.z * params.chunk;
  let count = select(0u, min(params.chunk, params.length - min(first, params.length)), inside);
  let start = slice / inner * params.length * inner + slice % inner + first * inner;

  var before = A(0);
  if params.carried == 1u && inside {
    before = carry[params.carry_offset + workgroup.id.z * params.slices + slice];
  }
  for (var tile = 0u; tile < params.chunk; tile += row_group * SHARE) {
    var sums: array<A, SHARE>;
    var sum = A(0);
    for (var j = 0u; j < SHARE; j++) {
      let t = tile + rank * SHARE + j;
      var number = A(0);
      if t < count {
        number = fetch(start + select(t, count - 1u - t, params.reverse == 1u) * inner);
      }
      sums[j] = sum + number;
      if params.exclusive == 1u {
        sums[j] = sum;
      }
      sum += number;
    }
    // The sums of the members up to each.
    sh_sums[lane] = sum;
    workgroupBarrier();
    for (var distance = 1u; distance < row_group; distance *= 2u) {
      var other = A(0);
      if rank >= distance {
        other = sh_sums[lane - distance * stride];
      }
      workgroupBarrier();
      sh_sums[lane] += other;
      workgroupBarrier();
    }
    var earlier = before;
    if rank > 0u {
      earlier += sh_sums[lane - stride];
    }
    before += sh_sums[lane + (row_group - 1u - rank) * stride];
    for (var j = 0u; j < SHARE; j++) {
      let t = tile + rank * SHARE + j;
      if t < count {
        y[params.y_offset + start + select(t, count - 1u - t, params.reverse == 1u) * inner] =
          T(earlier + sums[j]);
      }
    }
    workgroupBarrier();
  }
}
