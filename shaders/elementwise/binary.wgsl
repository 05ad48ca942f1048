// y = apply(a, b), element by element, over up to six nested loops. A stride of 0 repeats an operand.
//
// needs: T, IN_PLACE (bit 0: y is a; bit 1: y is b), apply

struct Params {
  n: u32,
  rank: u32,
  a_offset: u32,
  b_offset: u32,
  y_offset: u32,
  // For each loop, outermost first: extent, stride of a, stride of b, stride of y.
  loops: array<vec4<u32>, 6>,
}

@group(0) @binding(0) var<storage, read> a: array<T>;
@group(0) @binding(1) var<storage, read> b: array<T>;
@group(0) @binding(2) var<storage, read_write> y: array<T>;

fn load_a(i: u32, o: u32) -> f32 {
  if (IN_PLACE & 1u) != 0u {
    return f32(y[o]);
  }
  return f32(a[i]);
}

fn load_b(i: u32, o: u32) -> f32 {
  if (IN_PLACE & 2u) != 0u {
    return f32(y[o]);
  }
  return f32(b[i]);
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
  // Indices of a, b and y.
  var at = vec3<u32>(params.a_offset, params.b_offset, params.y_offset);
  for (var d = params.rank; d > 0u; d--) {
    let extent = params.loops[d - 1u];
    at += (rest % extent.x) * extent.yzw;
    rest = rest / extent.x;
  }
  y[at.z] = T(apply(load_a(at.x, at.z), load_b(at.y, at.z)));
}
