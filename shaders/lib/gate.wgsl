// Gated linear units of the halves of a product, numbered as the Rust enum is.
//
// needs: activate (lib/activate or lib/activate_half)

fn glu(gate: u32, x: f32, y: f32) -> f32 {
  switch gate {
    case 1u: { return activate(2u, x) * y; }
    case 2u: { return activate(3u, x) * y; }
    case 3u: { return binary_swiglu_oai(x, y); }
    default: { return activate(4u, x) * y; }
  }
}
