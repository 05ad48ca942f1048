// Sums of exponentials beside the maximum.
//
// Two are joined by scaling the one with the smaller maximum (Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018).

// The maximum m and Σ exp(x − m).
alias State = vec2<f32>;

fn join(a: State, b: State) -> State {
  let m = max_nan(a.x, b.x);
  return State(m, a.y * exp_below(a.x, m) + b.y * exp_below(b.x, m));
}
