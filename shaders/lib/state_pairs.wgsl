// The states of a reduction that goes on with those that an earlier one has stored.

alias V = State;
const WIDTH = 1u;
const IN_WORDS = 0u;

fn states(v: V, index: u32) -> States {
  return States(v);
}

fn with_edge(total: States, v: V, half: u32, index: u32) -> States {
  return total;
}
