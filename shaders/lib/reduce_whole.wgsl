// A reduction without a fix-up: the functions of lib/reduce_fixup, which nothing calls then.
//
// needs: the rule of a reduction

const FIXES_UP = 0u;

fn put_part(i: u32, state: State) {
}

fn part_at(i: u32) -> State {
  return start();
}

fn is_last_workgroup(counter: u32, workgroups: u32, index: u32) -> bool {
  return true;
}
