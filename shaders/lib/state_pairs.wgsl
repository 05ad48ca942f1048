// The states of a reduction that goes on with those that an earlier one has stored.

alias V = State;
const WIDTH = 1u;

fn states(v: V, index: u32, step: u32) -> States {
  return States(v);
}
