// Random numbers: shift + scale · x, with x uniform in [0, 1) or normal. Each invocation makes a block of
// four.
//
// needs: T, TN (an element of the output), VEC_WIDTH, NORMAL, write

struct Params {
  // Of the output.
  n: u32,
  blocks: u32,
  output: u32,
  // Elements of the first block that are left out.
  skip: u32,
  seed_low: u32,
  seed_high: u32,
  // Number of the first block.
  block_low: u32,
  block_high: u32,
  shift: f32,
  scale: f32,
  // Always 0, which a compiler doesn't know.
  zero: u32,
}

@group(0) @binding(0) var<storage, read_write> output: array<TN>;

fn placed(number: f32) -> f32 {
  return params.shift + rounded(params.scale * number);
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let block = flat_group(group, groups) * 256u + lane;
  if block >= params.blocks {
    return;
  }
  let low = params.block_low + block;
  let high = params.block_high + select(0u, 1u, low < block);
  let words = philox(low, high, vec2<u32>(params.seed_low, params.seed_high));
  var x = vec4<f32>();
  if NORMAL == 1u {
    x = normals(words);
  } else {
    x = uniforms(words);
  }
  write(block, vec4<f32>(placed(x.x), placed(x.y), placed(x.z), placed(x.w)));
}
