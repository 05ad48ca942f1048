// Copies f16 images to where the channels of a pixel are adjacent, filled up with 0 to a multiple of eight in each
// group. An invocation copies eight channels of a pixel; neighbours have neighbouring pixels.
//
// needs: T

struct Params {
  total: u32,
  pixels: u32,
  groups: u32,
  // Of a group, in the images and in the copy.
  channels: u32,
  channels_out: u32,
  interleaved: u32,
  input_offset: u32,
}

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read_write> output: array<vec4<u32>>;

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let i = flat_group(group, groups) * 256u + lane;
  if i >= params.total {
    return;
  }
  let eights = params.channels_out / 8u;
  let pixel = i % params.pixels;
  let plane = i / params.pixels;
  let eight = plane % (eights * params.groups);
  let image = plane / (eights * params.groups);
  let first = eight % eights * 8u;
  let channel = eight / eights * params.channels + first;
  let all = params.groups * params.channels;
  let step = select(params.pixels, 1u, params.interleaved == 1u);
  let at = params.input_offset + select(
    (image * all + channel) * params.pixels + pixel,
    (image * params.pixels + pixel) * all + channel,
    params.interleaved == 1u,
  );
  var numbers: array<f32, 8>;
  for (var j = 0u; j < 8u; j++) {
    if first + j < params.channels {
      numbers[j] = f32(input[at + j * step]);
    }
  }
  output[(image * params.pixels + pixel) * eights * params.groups + eight] = vec4<u32>(
    pack2x16float(vec2<f32>(numbers[0], numbers[1])),
    pack2x16float(vec2<f32>(numbers[2], numbers[3])),
    pack2x16float(vec2<f32>(numbers[4], numbers[5])),
    pack2x16float(vec2<f32>(numbers[6], numbers[7])),
  );
}
