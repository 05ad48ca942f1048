// A token of each row of sorted logits, drawn at random: one workgroup for each row, which goes through the
// weights by 256 three times, for their sum, for what of them is kept, and for the token.
//
// needs: HAS_OFFSET (whether a number of 64 bits in memory is added to where in the stream the numbers are)

var<workgroup> sums: array<f32, 512>;
var<workgroup> chosen: u32;
var<workgroup> kept_count: atomic<u32>;

// exp((x − first) / temperature) of the token at a place, 0 from 2⁻¹²⁵ down.
fn weight(row: u32, place: u32, first: f32) -> f32 {
  if place >= params.kept {
    return 0.0;
  }
  let token = order[params.order + row * params.kept + place];
  let power = (x[params.x + row * params.columns + token] - first) / params.temperature;
  return select(0.0, exp(max(power, -86.0)), power > -86.0);
}

// Sums of the weights of this and the lanes before, and in the slot before the first lane's 0.
fn scan(lane: u32, value: f32) -> vec2<f32> {
  sums[lane] = 0.0;
  sums[256u + lane] = value;
  workgroupBarrier();
  for (var distance = 1u; distance < 256u; distance *= 2u) {
    let sum = sums[256u + lane] + sums[256u + lane - distance];
    workgroupBarrier();
    sums[256u + lane] = sum;
    workgroupBarrier();
  }
  let result = vec2<f32>(sums[255u + lane], sums[256u + lane]);
  return result;
}

// A number of the stream, uniform in [0, 1).
fn uniform_number(row: u32) -> f32 {
  var start = vec2<u32>(params.start_low, params.start_high);
  if HAS_OFFSET == 1u {
    start.x += offsets[params.offset];
    start.y += offsets[params.offset + 1u] + select(0u, 1u, start.x < params.start_low);
  }
  let low = start.x + row;
  let high = start.y + select(0u, 1u, low < row);
  let words = philox((low >> 2u) | (high << 30u), high >> 2u, vec2<u32>(params.seed_low, params.seed_high));
  return uniforms(words)[low & 3u];
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let row = flat_group(workgroup.id, workgroup.count);
  if row >= params.rows {
    return;
  }
  let first_token = order[params.order + row * params.kept];
  let first = x[params.x + row * params.columns + first_token];
  if params.temperature == 0.0 || is_nan(first) || is_inf(first) {
    if lane == 0u {
      y[params.y + row] = first_token;
    }
    return;
  }

  // All weights.
  var part = 0.0;
  for (var start = 0u; start < params.kept; start += 256u) {
    part += weight(row, start + lane, first);
  }
  scan(lane, part);
  let share = params.top_p * sums[511];
  if lane == 0u {
    atomicStore(&kept_count, 1u);
  }
  workgroupBarrier();

  // How many are kept: those before which the share isn't full, down to the least weight. None of weight 0: the
  // sums are formed in another order than that of all weights, which they may never reach.
  var before = 0.0;
  for (var start = 0u; start < params.kept; start += 256u) {
    let place = start + lane;
    let value = weight(row, place, first);
    let around = scan(lane, value);
    if value > 0.0 && before + around.x < share && value >= params.min_p {
      atomicMax(&kept_count, place + 1u);
    }
    before += sums[511];
    workgroupBarrier();
  }
  let count = atomicLoad(&kept_count);
  workgroupBarrier();

  // Their sum, and the token.
  part = 0.0;
  for (var start = 0u; start < params.kept; start += 256u) {
    let place = start + lane;
    if place < count {
      part += weight(row, place, first);
    }
  }
  scan(lane, part);
  let bound = uniform_number(params.row + row) * sums[511];
  if lane == 0u {
    chosen = count - 1u;
  }
  workgroupBarrier();
  before = 0.0;
  for (var start = 0u; start < params.kept; start += 256u) {
    let place = start + lane;
    var value = 0.0;
    if place < count {
      value = weight(row, place, first);
    }
    let around = scan(lane, value) + vec2<f32>(before);
    if place < count && around.x <= bound && bound < around.y {
      chosen = place;
    }
    before += sums[511];
    workgroupBarrier();
  }
  if lane == 0u {
    y[params.y + row] = order[params.order + row * params.kept + chosen];
  }
}
