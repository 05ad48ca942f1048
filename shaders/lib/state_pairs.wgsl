// The states of a reduction that goes on with what lib/rule_arg has stored of an earlier one.

alias V = vec2<u32>;
const WIDTH = 1u;

fn states(v: V, index: u32, step: u32) -> array<State, WIDTH> {
  return array<State, WIDTH>(v);
}
