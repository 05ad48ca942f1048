// y = exp(x − m) / s, or its logarithm, with the maximum m and the sum s of each slice from
// shaders/reduce/reduce.wgsl.
//
// That kernel may have left them in several parts, which every invocation joins for the slices that it meets.
//
// needs: T, LOG, lib/vectors_ahead and what it needs

alias A = f32;

// The maximum of a slice, and what its sum does to each number.
fn shift_and_scale(slice: u32) -> vec2<f32> {
  var state = sums[params.sums_offset + slice];
  for (var k = 1u; k < params.parts; k++) {
    state = join(state, sums[params.sums_offset + k * params.outputs + slice]);
  }
  return vec2<f32>(state.x, softmax_scale(state.x, state.y));
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let first = flat_group(workgroup.id, workgroup.count) * 256u * AHEAD + lane;
  var vectors = fetch_ahead(first);
  var known = 0xffffffffu;
  var numbers_of: array<vec2<f32>, WIDTH>;
  for (var j = 0u; j < AHEAD; j++) {
    let i = first + j * 256u;
    if i >= params.vectors {
      return;
    }
    // Neighbouring lanes are of one slice, or of neighbouring ones.
    let inner = params.inner;
    let slice = i / (params.length * inner) * inner + i % inner;
    if slice != known {
      for (var l = 0u; l < WIDTH; l++) {
        if l == 0u || inner > 1u {
          numbers_of[l] = shift_and_scale(select(slice, slice * WIDTH + l, inner > 1u));
        } else {
          numbers_of[l] = numbers_of[0];
        }
      }
      known = slice;
    }
    var numbers = unpack(vectors[j]);
    for (var l = 0u; l < WIDTH; l++) {
      let m = numbers_of[l].x;
      let scale = numbers_of[l].y;
      if LOG == 1u {
        numbers[l] = numbers[l] - max(m, LOWEST) - scale;
      } else {
        numbers[l] = exp_below(numbers[l], m) * scale;
      }
    }
    y[params.y_offset + i] = pack(numbers);
  }
}
