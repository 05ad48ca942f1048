// The reductions, chosen by number so that one kernel may use several. Each gives NaN if one of the values is
// NaN.

const SUM = 0u;
const PROD = 1u;
const MAX = 2u;
const MIN = 3u;

// The value that changes no other in a reduction.
fn identity(op: u32) -> f32 {
  switch op {
    case PROD: { return 1.0; }
    case MAX: { return -inf(); }
    case MIN: { return inf(); }
    default: { return 0.0; }
  }
}

fn combine(op: u32, a: f32, b: f32) -> f32 {
  switch op {
    case PROD: { return a * b; }
    case MAX: { return max_nan(a, b); }
    case MIN: { return min_nan(a, b); }
    default: { return a + b; }
  }
}
