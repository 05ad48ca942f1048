// A fused activation whose result is stored as f16, numbered as the Rust enum is.

fn activate(activation: u32, x: f32) -> f32 {
  switch activation {
    case 1u: { return unary_relu(x); }
    case 2u: { return half_gelu(x); }
    case 3u: { return half_gelu_tanh(x); }
    case 4u: { return half_silu(x); }
    default: { return x; }
  }
}
