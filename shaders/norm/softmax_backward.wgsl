// dx = y · (dy − Σ dy · y) along an axis for y = softmax(x), or dx = dy − exp(y) · Σ dy for its logarithm.
//
// A row group of invocations works on each slice, which it reads twice.
//
// needs: T, LOG, IN_PLACE, the vec of a vector

alias A = f32;

fn gradient(i: u32) -> array<A, WIDTH> {
  if IN_PLACE == 1u {
    return unpack(dx[params.dx_offset + i]);
  }
  return unpack(dy[params.dy_offset + i]);
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let row_group = params.row_group;
  let inner = params.inner;
  let number = flat_group(workgroup.id, workgroup.count) * (256u / row_group) + row_group_index(lane, row_group, params.stride);
  let start = number / inner * params.length * inner + number % inner;
  let rank = row_group_rank(lane, row_group, params.stride);
  let length = select(0u, params.length, number < params.slices);

  var sum = 0.0;
  for (var k = rank; k < length; k += row_group) {
    var g = gradient(start + k * inner);
    var p = unpack(y[params.y_offset + start + k * inner]);
    var part = 0.0;
    for (var l = 0u; l < WIDTH; l++) {
      part += g[l] * select(p[l], 1.0, LOG == 1u);
    }
    sum += part;
  }
  let total = row_group_reduce(SUM, lane, row_group, params.stride, sum);

  for (var k = rank; k < length; k += row_group) {
    let i = start + k * inner;
    var g = gradient(i);
    var p = unpack(y[params.y_offset + i]);
    for (var l = 0u; l < WIDTH; l++) {
      if LOG == 1u {
        // Neither `max` nor `exp` has to hand NaN on.
        g[l] -= select(exp(max(p[l], -150.0)), p[l], is_nan(p[l])) * total;
      } else {
        g[l] = p[l] * (g[l] - total);
      }
    }
    dx[params.dx_offset + i] = pack(g);
  }
}
