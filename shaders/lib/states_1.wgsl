// The states of a reduction that reads number by number.
//
// needs: the vec of a vector, the rule of a reduction

fn states(v: V, index: u32, step: u32) -> States {
  return States(take(unpack(v)[0], index));
}
