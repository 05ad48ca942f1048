// The states of a reduction that reads number by number.
//
// needs: the vec of a vector, the rule of a reduction

const IN_WORDS = 0u;

fn states(v: V, index: u32) -> States {
  return States(take(unpack(v)[0], index));
}

fn with_edge(total: States, v: V, half: u32, index: u32) -> States {
  return total;
}
