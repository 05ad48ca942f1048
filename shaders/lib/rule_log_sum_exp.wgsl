// The logarithm of a sum of exponentials.
//
// Parts are joined by scaling the one with the smaller maximum (Milakov and Gimelshein, "Online normalizer calculation
// for softmax", 2018). What is stored is a number like those that are read, so a reduction can go on with it.
//
// needs: Y, y

// The maximum m and Σ exp(x − m).
alias State = vec2<f32>;

fn start() -> State {
  return State(-inf(), 0.0);
}

fn take(x: f32, index: u32) -> State {
  return State(x, 1.0);
}

fn join(a: State, b: State) -> State {
  let m = max_nan(a.x, b.x);
  return State(m, a.y * exp_below(a.x, m) + b.y * exp_below(b.x, m));
}

fn store(i: u32, state: State) {
  let m = state.x;
  // Infinities and NaN are what the maximum is.
  y[i] = Y(select(m + unary_log(state.y), m, is_nan(m) || is_inf(m)));
}
