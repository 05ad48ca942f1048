// The fix-up of a reduction that is cut into slices: each slice's result is a word of `fixup`, and the last workgroup joins them.
//
// needs: the rule of a reduction, lib/last_workgroup

@group(0) @binding(1) var<storage, read_write> fixup: array<atomic<u32>>;

const FIXES_UP = 1u;

fn put_part(i: u32, state: State) {
  atomicStore(&fixup[COUNTERS + i], bitcast<u32>(state));
}

fn part_at(i: u32) -> State {
  return bitcast<State>(atomicLoad(&fixup[COUNTERS + i]));
}
