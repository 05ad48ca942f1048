// y = apply(x), element by element, over up to six nested loops.
//
// needs: T, IN_PLACE, apply

struct Params {
  n: u32,
  rank: u32,
  x_offset: u32,
  y_offset: u32,
  // For each loop, outermost first: extent, stride of x, stride of y.
  loops: array<vec4<u32>, 6>,
}

@group(0) @binding(0) var<storage, read> x: array<T>;
@group(0) @binding(1) var<storage, read_write> y: array<T>;

fn load(i: u32) -> f32 {
  if IN_PLACE == 1u {
    return f32(y[i]);
  }
  return f32(x[i]);
}

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
  var i = params.x_offset;
  var o = params.y_offset;
  for (var d = params.rank; d > 0u; d--) {
    let extent = params.loops[d - 1u];
    let step = rest % extent.x;
    rest = rest / extent.x;
    i += step * extent.y;
    o += step * extent.z;
  }
  y[o] = T(apply(load(i)));
}
