// Results of a reduction's slices that the last workgroup of their outputs joins, each in two words.
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
