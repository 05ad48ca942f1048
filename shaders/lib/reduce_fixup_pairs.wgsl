// The fix-up of a reduction that is cut into slices, of states of two numbers: each slice's result is two words of `fixup`, and the
// last workgroup joins them.
//
// needs: the rule of a reduction, lib/last_workgroup

@group(0) @binding(1) var<storage, read_write> fixup: array<atomic<u32>>;

const FIXES_UP = 1u;

fn put_part(i: u32, state: State) {
  let words = bitcast<vec2<u32>>(state);
  let at = COUNTERS + 2u * i;
  atomicStore(&fixup[at], words.x);
  atomicStore(&fixup[at + 1u], words.y);
}

fn part_at(i: u32) -> State {
  let at = COUNTERS + 2u * i;
  return bitcast<State>(vec2<u32>(atomicLoad(&fixup[at]), atomicLoad(&fixup[at + 1u])));
}
