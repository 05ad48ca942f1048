// y[output] = the reduction of the elements x[output, r] over r.
//
// A row group of invocations iterates over the elements of each output. Where neighbouring elements are of
// one output, the members of a row group are neighbours (stride 1), and so are the lanes of a vector. Else
// neighbouring row groups have neighbouring outputs, and so have the lanes. Long reductions are cut into
// slices, one for each workgroup along z. Either y is then [slices, outputs], which a second launch reduces, or the last
// workgroup of its outputs joins what all slices have put aside (FIXES_UP).
//
// Invocations join short runs and then the runs, row groups their states in two steps of 16: the error of a sum
// grows with the root of its length.
//
// Rows of f16 that are no whole vectors are read in words. A row's head and tail, numbers that share a word with
// another row, are joined on their own.
//
// needs: Y, ONE_LOOP, the states of the elements of a vector, IN_WORDS, lib/reduce_whole or lib/reduce_fixup

// Vectors that an invocation asks for before it uses them.
const AHEAD = 4u;
// Vectors that are joined one after the other.
const RUN = 64u;

// Lanes of a vector whose states the invocations of a row group exchange at a time.
const TOGETHER = min(WIDTH, 4u);
// States that one invocation joins at the end.
const JOINING = 16u;

// The states of all invocations, by lane of a vector, and what those of large row groups are joined to.
var<workgroup> sh_states: array<State, TOGETHER * 256u>;
var<workgroup> sh_parts: array<State, TOGETHER * 128u>;

// Where the r-th vector of an output lies, from its first.
fn step_to(r: u32) -> u32 {
  if ONE_LOOP == 1u {
    return r * params.loops[5].y;
  }
  var rest = r;
  var offset = 0u;
  var d = 5u;
  var extent = params.loops[d];
  while rest >= extent.x {
    let quotient = rest / extent.x;
    offset += (rest - quotient * extent.x) * extent.y;
    rest = quotient;
    d -= 1u;
    extent = params.loops[d];
  }
  return offset + rest * extent.y;
}

// Every `row_group`th of `count` vectors from `first` on, beginning with the one of this rank. They are
// counted from `first`: a count from the first of nearly 2³² would wrap behind the last. The output has `skip`
// elements before the first vector.
fn reduce_slice(base: u32, skip: u32, first: u32, count: u32, rank: u32) -> States {
  let row_group = params.row_group;
  let scale = select(1u, WIDTH, params.stride == 1u);
  // Over one loop, as most are, every vector lies as far from the last. Where a driver is told so by ONE_LOOP, it arranges
  // the loads of long rows worse.
  let straight = params.length <= params.loops[5].x;
  let ahead = params.loops[5].y * row_group;
  var total = none();
  var i = rank;
  while i < count {
    let stop = i + min(count - i, RUN * row_group);
    var run = none();
    while i < stop && stop - i > (AHEAD - 1u) * row_group {
      let r = first + i;
      // All are asked for before the first is waited for.
      var a: V;
      var b: V;
      var c: V;
      var d: V;
      if straight {
        let at = base + r * params.loops[5].y;
        a = x[at];
        b = x[at + ahead];
        c = x[at + 2u * ahead];
        d = x[at + 3u * ahead];
      } else {
        a = x[base + step_to(r)];
        b = x[base + step_to(r + row_group)];
        c = x[base + step_to(r + 2u * row_group)];
        d = x[base + step_to(r + 3u * row_group)];
      }
      run = joined(run, states(a, r * scale + skip));
      run = joined(run, states(b, (r + row_group) * scale + skip));
      run = joined(run, states(c, (r + 2u * row_group) * scale + skip));
      run = joined(run, states(d, (r + 3u * row_group) * scale + skip));
      i += AHEAD * row_group;
    }
    // The last elements, fewer than AHEAD: the first is read in place of those behind the end.
    if i < stop {
      let left = stop - i;
      let r = first + i;
      let a = x[base + step_to(r)];
      let b = x[base + step_to(select(r, r + row_group, left > row_group))];
      let c = x[base + step_to(select(r, r + 2u * row_group, left > 2u * row_group))];
      run = joined(run, states(a, r * scale + skip));
      if left > row_group {
        run = joined(run, states(b, (r + row_group) * scale + skip));
      }
      if left > 2u * row_group {
        run = joined(run, states(c, (r + 2u * row_group) * scale + skip));
      }
      i = stop;
    }
    total = joined(total, run);
  }
  return total;
}

// What becomes of an invocation's states.
struct Place {
  lane: u32,
  rank: u32,
  // Whether there is such an output.
  inside: bool,
  // Where the result goes, that of the first lane of a vector, and how far apart those of the others are.
  to: u32,
  step: u32,
  // Whether it is put aside, as of one of several slices.
  is_part: bool,
  // The first of the parts that it is joined from, how many there are, and how far apart, where they were put aside.
  part: u32,
  parts: u32,
  parts_step: u32,
}

fn put(i: u32, state: State, is_part: bool) {
  if is_part {
    put_part(i, state);
  } else {
    store(i, state);
  }
}

// What an invocation's share of the parts of an output is joined to. Four are on their way together.
fn joined_parts(place: Place) -> State {
  let row_group = params.row_group;
  var state = start();
  let end = select(0u, place.parts, place.inside);
  for (var s = place.rank; s < end; s += 4u * row_group) {
    // In place of those behind the end, the last is read.
    let at = place.part + min(s + vec4<u32>(0u, 1u, 2u, 3u) * row_group, vec4<u32>(end - 1u)) * place.parts_step;
    let a = part_at(at.x);
    let b = part_at(at.y);
    let c = part_at(at.z);
    let d = part_at(at.w);
    state = join(state, a);
    if s + row_group < end {
      state = join(state, b);
    }
    if s + 2u * row_group < end {
      state = join(state, c);
    }
    if s + 3u * row_group < end {
      state = join(state, d);
    }
  }
  return state;
}

// States of up to four lanes of a vector, by name, as drivers keep arrays in memory.
struct Lanes {
  a: State,
  b: State,
  c: State,
  d: State,
}

// The lanes' parts with this number; of lanes beyond TOGETHER, that of another one. Parts of a lane lie side by side.
fn parts_at(place: Place, part: u32, lane: u32) -> Lanes {
  let at = place.part + part * place.parts_step + lane * params.outputs;
  let b = at + min(1u, TOGETHER - 1u) * params.outputs;
  let c = at + min(2u, TOGETHER - 1u) * params.outputs;
  return Lanes(part_at(at), part_at(b), part_at(c), part_at(at + (TOGETHER - 1u) * params.outputs));
}

fn joined_pair(one: Lanes, other: Lanes) -> Lanes {
  return Lanes(join(one.a, other.a), join(one.b, other.b), join(one.c, other.c), join(one.d, other.d));
}

// What an invocation's share of the parts of outputs is joined to, of some lanes from `lane` on. Two of each lane are on their
// way together.
fn joined_parts_of_lanes(place: Place, lane: u32) -> Lanes {
  let row_group = params.row_group;
  var lanes = Lanes(start(), start(), start(), start());
  let end = select(0u, place.parts, place.inside);
  for (var s = place.rank; s < end; s += 2u * row_group) {
    let one = parts_at(place, s, lane);
    let other = parts_at(place, min(s + row_group, end - 1u), lane);
    lanes = joined_pair(lanes, one);
    if s + row_group < end {
      lanes = joined_pair(lanes, other);
    }
  }
  return lanes;
}

// The states of some lanes from `lane` on: of the elements that the invocation has read, or of parts.
fn lanes_of(total: States, place: Place, lane: u32) -> Lanes {
  if FIXES_UP == 1u && !place.is_part {
    return joined_parts_of_lanes(place, lane);
  }
  let b = lane_of(total, lane + min(1u, TOGETHER - 1u));
  let c = lane_of(total, lane + min(2u, TOGETHER - 1u));
  return Lanes(lane_of(total, lane), b, c, lane_of(total, lane + TOGETHER - 1u));
}

// Joins the states of a row group of neighbours and puts the result where it goes. The whole workgroup has to come here.
fn join_row(place: Place, own: State) {
  let row_group = params.row_group;
  var state = own;
  if row_group == 1u {
    if place.inside {
      put(place.to, state, place.is_part);
    }
    return;
  }
  let lane = place.lane;
  sh_states[lane] = own;
  workgroupBarrier();
  if row_group <= JOINING {
    if place.rank == 0u && place.inside {
      for (var k = 1u; k < row_group; k++) {
        state = join(state, sh_states[lane + k]);
      }
      put(place.to, state, place.is_part);
    }
    return;
  }
  // Row groups have 32 members or more here: there are eight of them at most.
  let first = lane / row_group * JOINING;
  if place.rank < JOINING {
    for (var k = JOINING; k < row_group; k += JOINING) {
      state = join(state, sh_states[lane + k]);
    }
    sh_parts[first + place.rank] = state;
  }
  workgroupBarrier();
  if place.rank == 0u && place.inside {
    for (var k = 1u; k < JOINING; k++) {
      state = join(state, sh_parts[first + k]);
    }
    put(place.to, state, place.is_part);
  }
}

// Joins the states of a row group and puts the results of the lanes of a vector where they go. The whole workgroup has to
// come here.
fn join_lanes(place: Place, total: States) {
  let row_group = params.row_group;
  if row_group == 1u {
    for (var t = 0u; t < WIDTH; t += TOGETHER) {
      let states = lanes_of(total, place, t);
      let to = place.to + t * place.step;
      if place.inside {
        put(to, states.a, place.is_part);
        if TOGETHER > 1u {
          put(to + place.step, states.b, place.is_part);
        }
        if TOGETHER > 2u {
          put(to + 2u * place.step, states.c, place.is_part);
          put(to + 3u * place.step, states.d, place.is_part);
        }
      }
    }
    return;
  }
  let stride = params.stride;
  let lane = place.lane;
  let rank = place.rank;
  let home = lane - rank * stride;
  for (var t = 0u; t < WIDTH; t += TOGETHER) {
    let states = lanes_of(total, place, t);
    sh_states[lane] = states.a;
    if TOGETHER > 1u {
      sh_states[256u + lane] = states.b;
    }
    if TOGETHER > 2u {
      sh_states[512u + lane] = states.c;
      sh_states[768u + lane] = states.d;
    }
    workgroupBarrier();
    if row_group <= JOINING {
      for (var l = rank; l < TOGETHER; l += row_group) {
        let at = l * 256u + home;
        var state = sh_states[at];
        for (var k = 1u; k < row_group; k++) {
          state = join(state, sh_states[at + k * stride]);
        }
        if place.inside {
          put(place.to + (t + l) * place.step, state, place.is_part);
        }
      }
    } else {
      let first = (lane / (row_group * stride) * stride + lane % stride) * (JOINING * TOGETHER);
      for (var i = rank; i < JOINING * TOGETHER; i += row_group) {
        let at = i / JOINING * 256u + home + i % JOINING * stride;
        var state = sh_states[at];
        for (var k = JOINING; k < row_group; k += JOINING) {
          state = join(state, sh_states[at + k * stride]);
        }
        sh_parts[first + i] = state;
      }
      workgroupBarrier();
      for (var l = rank; l < TOGETHER; l += row_group) {
        let at = first + l * JOINING;
        var state = sh_parts[at];
        for (var k = 1u; k < JOINING; k++) {
          state = join(state, sh_parts[at + k]);
        }
        if place.inside {
          put(place.to + (t + l) * place.step, state, place.is_part);
        }
      }
    }
    // The next lanes overwrite what these have been joined from.
    if t + TOGETHER < WIDTH {
      workgroupBarrier();
    }
  }
}

@compute @workgroup_size(256)
fn main(workgroup: Workgroup, @builtin(local_invocation_index) lane: u32) {
  let row_group = params.row_group;
  let stride = params.stride;
  // Both are powers of two, and divisions take as long as a few loads.
  let in_row_group = firstTrailingBit(row_group);
  let in_stride = firstTrailingBit(stride);
  let rank = (lane >> in_stride) & (row_group - 1u);
  let first_output = flat_group(workgroup.id, workgroup.count) * (256u >> in_row_group);
  let output = first_output + ((lane >> (in_row_group + in_stride)) << in_stride) + (lane & (stride - 1u));
  let inside = output < params.outputs;

  var base = params.x_offset;
  var target_index = params.y_offset;
  if ONE_LOOP == 1u {
    base += output * params.loops[0].y;
    target_index += output * params.loops[0].z;
  } else {
    var rest = output;
    for (var d = params.kept; d > 0u; d--) {
      let extent = params.loops[d - 1u];
      var step = rest;
      // The first loop has what is left.
      if d > 1u {
        step = rest % extent.x;
        rest /= extent.x;
      }
      base += step * extent.y;
      target_index += step * extent.z;
    }
  }

  var vectors = params.length;
  var most = params.length;
  var skip = 0u;
  if IN_WORDS == 1u {
    skip = base % 2u;
    vectors = (params.length - skip) / 2u;
    most = params.length / 2u;
    base = (base + 1u) / 2u;
  }
  var chunk = most;
  if workgroup.count.z > 1u {
    chunk = (most - 1u) / workgroup.count.z + 1u;
  }
  let first = workgroup.id.z * chunk;
  let count = select(0u, min(chunk, vectors - min(first, vectors)), inside);
  var total = reduce_slice(base, skip, first, count, rank);
  if IN_WORDS == 1u && inside && rank == 0u {
    if workgroup.id.z == 0u && skip == 1u {
      total = with_edge(total, x[base - 1u], 1u, 0u);
    }
    if workgroup.id.z == workgroup.count.z - 1u && (params.length - skip) % 2u == 1u {
      total = with_edge(total, x[base + vectors], 0u, params.length - 1u);
    }
  }

  // The lanes of a vector are elements of one output, or outputs.
  let is_row = stride == 1u;
  let width = select(WIDTH, 1u, is_row);
  let all = params.outputs * width;
  let slice = workgroup.id.z * all;
  var place = Place(lane, rank, inside, target_index + slice, 0u, false, output, workgroup.count.z, all);
  if WIDTH > 1u && !is_row {
    place.step = params.loops[select(params.kept - 1u, 0u, ONE_LOOP == 1u)].z / WIDTH;
  }
  if FIXES_UP == 1u {
    var aside = place;
    aside.to = place.part + slice;
    aside.step = params.outputs;
    aside.is_part = true;
    if is_row {
      join_row(aside, joined_lanes(total));
    } else {
      join_lanes(aside, total);
    }
    if !is_last_workgroup(flat_group(workgroup.id, workgroup.count), workgroup.count.z, lane) {
      return;
    }
    place.to = target_index;
  }
  if is_row {
    if FIXES_UP == 1u {
      join_row(place, joined_parts(place));
    } else {
      join_row(place, joined_lanes(total));
    }
  } else {
    join_lanes(place, total);
  }
}
