// One state where others have several side by side.
//
// needs: the rule of a reduction

alias States = array<State, WIDTH>;

fn none() -> States {
  return States(start());
}

// The numbers of `b` come behind those of `a`.
fn joined(a: States, b: States) -> States {
  return States(join_in_order(a[0], b[0]));
}

fn joined_lanes(a: States) -> State {
  return a[0];
}

fn lane_of(a: States, l: u32) -> State {
  return a[0];
}
