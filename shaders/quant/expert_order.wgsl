// Puts indices into the order of the experts that they choose, for tiles of rows that share an expert.
//
// A workgroup has an expert, the last one indices that are no expert's. An invocation has a stretch of the indices: it
// counts those of the expert and of experts before, from which follows where its own ones go.
//
// The expert's tiles begin with number `start / TILE + expert`, which leaves room for those of all before. Each has an
// entry of four words in `plan`: the expert, where its indices begin in the order, and how many they are, if any.
//
// needs: TILE

const THREADS: u32 = 256u;

// The indices of the expert in the stretches up to each, and those of experts before.
var<workgroup> own: array<u32, THREADS>;
var<workgroup> before: array<u32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let expert = flat_group(workgroup.id, workgroup.count);
  if expert > params.experts {
    return;
  }
  let stretch = (params.pairs + THREADS - 1u) / THREADS;
  let first = min(lane * stretch, params.pairs);
  let end = min(first + stretch, params.pairs);
  var count = 0u;
  var lower = 0u;
  for (var pair = first; pair < end; pair++) {
    let index = min(indices[params.indices + pair], params.experts);
    count += u32(index == expert);
    lower += u32(index < expert);
  }
  own[lane] = count;
  before[lane] = lower;
  for (var step = 1u; step < THREADS; step *= 2u) {
    workgroupBarrier();
    var more = vec2<u32>();
    if lane >= step {
      more = vec2<u32>(own[lane - step], before[lane - step]);
    }
    workgroupBarrier();
    own[lane] += more.x;
    before[lane] += more.y;
  }
  workgroupBarrier();
  let start = before[THREADS - 1u];
  let total = own[THREADS - 1u];

  var at = params.order + start + own[lane] - count;
  for (var pair = first; pair < end; pair++) {
    if min(indices[params.indices + pair], params.experts) == expert {
      plan[at] = pair;
      at++;
    }
  }

  let first_tile = start / TILE + expert;
  let end_tile = (start + total) / TILE + expert + 1u;
  for (var tile = first_tile + lane; tile < end_tile; tile += THREADS) {
    let skipped = min((tile - first_tile) * TILE, total);
    let entry = params.entries + 4u * tile;
    plan[entry] = expert;
    plan[entry + 1u] = start + skipped;
    plan[entry + 2u] = min(total - skipped, TILE);
  }
}
