// dx = s · (g − mean(g) − v · mean(g · v)) for each row, with g = dy · weight, the normalised row v = (x −
// mean(x)) · s and s = 1 / √(mean((x − mean(x))²) + eps). If not CENTRED, without mean(x) and mean(g).
//
// A row group of invocations works on each row, which it reads three times.
//
// needs: T, CENTRED, IN_PLACE, HAS_WEIGHT, the vec of a vector

alias A = f32;

// The weighted gradient.
fn gradient(start: u32, column: u32) -> array<A, WIDTH> {
  var g: array<A, WIDTH>;
  if IN_PLACE == 1u {
    g = unpack(dx[params.dx_offset + start + column]);
  } else {
    g = unpack(dy[params.dy_offset + start + column]);
  }
  if HAS_WEIGHT == 1u {
    var factors = unpack(weight[params.weight_offset + column]);
    for (var l = 0u; l < WIDTH; l++) {
      g[l] *= factors[l];
    }
  }
  return g;
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let row_group = params.row_group;
  let row = flat_group(workgroup.id, workgroup.count) * (256u / row_group) + row_group_index(lane, row_group, 1u);
  let start = row * params.columns;
  let rank = row_group_rank(lane, row_group, 1u);
  let columns = select(0u, params.columns, row < params.rows);
  let n = f32(params.columns * WIDTH);

  var mean = 0.0;
  if CENTRED == 1u {
    var sum = 0.0;
    for (var k = rank; k < columns; k += row_group) {
      var numbers = unpack(x[params.x_offset + start + k]);
      var part = 0.0;
      for (var l = 0u; l < WIDTH; l++) {
        part += numbers[l];
      }
      sum += part;
    }
    mean = row_group_reduce(SUM, lane, row_group, 1u, sum) / n;
  }

  var squares = 0.0;
  var gradients = 0.0;
  var products = 0.0;
  for (var k = rank; k < columns; k += row_group) {
    var numbers = unpack(x[params.x_offset + start + k]);
    var g = gradient(start, k);
    for (var l = 0u; l < WIDTH; l++) {
      let deviation = numbers[l] - mean;
      squares += deviation * deviation;
      gradients += g[l];
      products += g[l] * deviation;
    }
  }
  let scale = inverseSqrt(row_group_reduce(SUM, lane, row_group, 1u, squares) / n + params.eps);
  let product = row_group_reduce(SUM, lane, row_group, 1u, products) / n * scale;
  var shift = 0.0;
  if CENTRED == 1u {
    shift = row_group_reduce(SUM, lane, row_group, 1u, gradients) / n;
  }

  for (var k = rank; k < columns; k += row_group) {
    var numbers = unpack(x[params.x_offset + start + k]);
    var g = gradient(start, k);
    for (var l = 0u; l < WIDTH; l++) {
      g[l] = scale * (g[l] - shift - (numbers[l] - mean) * scale * product);
    }
    dx[params.dx_offset + start + k] = pack(g);
  }
}
