// y[output] = OP over k of x[outer, k, inner], output = (outer, inner).
//
// A team of invocations walks the axis of each output. Axes that are long beside the number of outputs are cut into
// slices of `chunk` numbers, one for each workgroup along z, and y is [slices, outputs]; a second launch reduces that.
// Invocations reduce short runs and then the runs, teams a tree: the error of a sum grows with the root of its length.
//
// needs: OP

struct Params {
  outputs: u32,
  length: u32,
  inner: u32,
  chunk: u32,
  team: u32,
  stride: u32,
  x_offset: u32,
  y_offset: u32,
  // The number that results are divided by.
  divisor: f32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

// Numbers that are reduced one after the other, in four strands.
const RUN = 64u;

fn reduce_run(first: u32, step: u32, count: u32) -> f32 {
  var strands = vec4<f32>(identity(OP));
  var i = first;
  for (var k = 0u; k < count / 4u; k++) {
    strands = vec4<f32>(
      combine(OP, strands.x, x[i]),
      combine(OP, strands.y, x[i + step]),
      combine(OP, strands.z, x[i + 2u * step]),
      combine(OP, strands.w, x[i + 3u * step]),
    );
    i += 4u * step;
  }
  var rest = identity(OP);
  for (var k = 0u; k < count % 4u; k++) {
    rest = combine(OP, rest, x[i]);
    i += step;
  }
  let pairs = vec2<f32>(combine(OP, strands.x, strands.y), combine(OP, strands.z, strands.w));
  return combine(OP, combine(OP, pairs.x, pairs.y), rest);
}

// The reduction of the `count` numbers x[first], x[first + step], ….
fn reduce_runs(first: u32, step: u32, count: u32) -> f32 {
  var total = identity(OP);
  for (var k = 0u; k < count; k += RUN) {
    total = combine(OP, total, reduce_run(first + k * step, step, min(RUN, count - k)));
  }
  return total;
}

@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let team = params.team;
  let rank = team_rank(lane, team, params.stride);
  let output = flat_group(group, groups) * (256u / team) + team_number(lane, team, params.stride);
  let inside = output < params.outputs;
  let first = group.z * params.chunk + rank;
  let end = min(group.z * params.chunk + params.chunk, params.length);
  var mine = identity(OP);
  if inside && first < end {
    let inner = params.inner;
    let start = params.x_offset + (output / inner * params.length + first) * inner + output % inner;
    mine = reduce_runs(start, team * inner, (end - first + team - 1u) / team);
  }
  var total = team_reduce(OP, lane, team, params.stride, mine);
  if params.divisor != 1.0 {
    total /= params.divisor;
  }
  if inside && rank == 0u {
    y[params.y_offset + group.z * params.outputs + output] = total;
  }
}
