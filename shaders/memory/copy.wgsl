// dst = convert(src), element by element, over up to six nested loops. Between equal types nothing is converted, so that
// every bit arrives.
//
// needs: SRC, DST, convert

struct Params {
  n: u32,
  rank: u32,
  src_offset: u32,
  dst_offset: u32,
  // For each loop, outermost first: extent, stride of src, stride of dst.
  loops: array<vec4<u32>, 6>,
}

@group(0) @binding(0) var<storage, read> src: array<SRC>;
@group(0) @binding(1) var<storage, read_write> dst: array<DST>;

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  var rest = flat_group(group, groups) * 256u + lane;
  if rest >= params.n {
    return;
  }
  var i = params.src_offset;
  var o = params.dst_offset;
  for (var d = params.rank; d > 0u; d--) {
    let extent = params.loops[d - 1u];
    let step = rest % extent.x;
    rest = rest / extent.x;
    i += step * extent.y;
    o += step * extent.z;
  }
  dst[o] = convert(src[i]);
}
