// The sinks of heads: scores that join a softmax's denominator without a value.
//
// needs: lib/attention, the binding `sinks`

// A query head's sink; −∞ for none.
fn sink_of(head: u32) -> f32 {
  if has(HAS_SINKS) {
    return sinks[(params.options >> 24u) + head];
  }
  return -inf();
}
