// The gradient of a pooling: each invocation makes that of one number of the input, from the windows that it lies in. For
// maxima, each of these is searched again.
//
// needs: T, OP, lib/pool

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read> gradient: array<T>;
@group(0) @binding(2) var<storage, read_write> output: array<T>;

// What the window at (y, x) gives to the number at `place`.
fn share(place: Place, y: u32, x: u32) -> f32 {
  let pixel = (place.image * params.out_height + y) * params.out_width + x;
  let given = f32(gradient[params.gradient_offset + pixel * params.inner + place.channel]);
  if OP == 0u {
    let best = largest(Place(place.image, y, x, place.channel));
    return select(0.0, given, best.y == place.y && best.x == place.x);
  }
  return given / f32(covered(y, x).count);
}

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
  let place = place_of(i, params.height, params.width);
  let bottom = place.y + params.before_y;
  let right = place.x + params.before_x;
  var sum = 0.0;
  for (var r = 0u; r < params.size_y && r * params.dilation_y <= bottom; r++) {
    let top = bottom - r * params.dilation_y;
    let y = top / params.step_y;
    if top % params.step_y != 0u || y >= params.out_height {
      continue;
    }
    for (var s = 0u; s < params.size_x && s * params.dilation_x <= right; s++) {
      let left = right - s * params.dilation_x;
      let x = left / params.step_x;
      if left % params.step_x == 0u && x < params.out_width {
        sum += share(place, y, x);
      }
    }
  }
  output[params.output_offset + i] = T(sum);
}
