// A fused activation, numbered as the Rust enum is.

fn activate(activation: u32, x: f32) -> f32 {
  switch activation {
    case 1u: { return unary_relu(x); }
    case 2u: { return unary_gelu(x); }
    case 3u: { return unary_gelu_tanh(x); }
    case 4u: { return unary_silu(x); }
    default: { return x; }
  }
}
