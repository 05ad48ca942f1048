// Logits in f32, with a repetition penalty on those of recent tokens, and −∞ for NaN: one invocation for each
// logit, which looks for its token in the row's window.
//
// needs: T (elements of the logits), lib/invocation_outputs

fn make_output(at: u32) {
  let row = at / params.columns;
  let token = at - row * params.columns;
  var logit = f32(x[params.x + at]);
  if is_nan(logit) {
    logit = -inf();
  }
  let first = params.window + row * params.window_len;
  for (var i = 0u; i < params.window_len; i++) {
    if window[first + i] == token {
      logit = select(logit * params.penalty, logit / params.penalty, logit > 0.0);
      break;
    }
  }
  y[params.y + at] = logit;
}
