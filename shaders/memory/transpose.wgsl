// dst = src where the elements of src lie side by side along the columns and those of dst along the rows: tiles of 64×64
// go through workgroup memory, so that both sides are read and written in runs. Up to four other loops repeat this. An
// element is LANES numbers side by side.
//
// needs: T, LANES, XN (an element in memory), put, take

struct Params {
  rows: u32,
  columns: u32,
  // Numbers from one row of src to the next, and from one column of dst to the next.
  src_row: u32,
  dst_column: u32,
  src: u32,
  dst: u32,
  batch: u32,
  rank: u32,
  // The other loops, outermost first: extent, stride of src, stride of dst. All counted in numbers.
  loops: array<vec4<u32>, 4>,
}

@group(0) @binding(0) var<storage, read> src: array<XN>;
@group(0) @binding(1) var<storage, read_write> dst: array<XN>;

// Rotated by its number, a row's and a column's numbers lie in different banks.
var<workgroup> tile: array<T, 4096>;

fn slot(row: u32, column: u32) -> u32 {
  return row * 64u + ((column + row) & 63u);
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  const QUADS = 64u / LANES;
  const STEPS = 16u / LANES;
  let across = (params.columns + 63u) / 64u;
  let down = (params.rows + 63u) / 64u;
  var rest = flat_group(group, groups);
  let left = rest % across * 64u;
  rest /= across;
  let top = rest % down * 64u;
  rest /= down;
  if rest >= params.batch {
    return;
  }
  var source = params.src;
  var sink = params.dst;
  for (var d = params.rank; d > 0u; d--) {
    let extent = params.loops[d - 1u];
    source += rest % extent.x * extent.y;
    sink += rest % extent.x * extent.z;
    rest /= extent.x;
  }

  for (var s = 0u; s < STEPS; s++) {
    let i = lane + s * 256u;
    let row = i / QUADS;
    let column = i % QUADS * LANES;
    if top + row < params.rows && left + column < params.columns {
      put(row, column, src[(source + (top + row) * params.src_row + left + column) / LANES]);
    }
  }
  workgroupBarrier();
  for (var s = 0u; s < STEPS; s++) {
    let i = lane + s * 256u;
    let column = i / QUADS;
    let row = i % QUADS * LANES;
    if top + row < params.rows && left + column < params.columns {
      dst[(sink + (left + column) * params.dst_column + top + row) / LANES] = take(row, column);
    }
  }
}
