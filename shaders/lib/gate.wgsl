// Gated linear units of the halves of a product, numbered as the Rust enum is.
//
// needs: activate (lib/activate or lib/activate_half)

// Where a gate is less than any f32, it is zero beside an infinite y too, of which approximations leave a little.
fn glu(gate: u32, x: f32, y: f32) -> f32 {
  switch gate {
    case 1u: { return select(activate(2u, x), 0.0, x < -20.0) * y; }
    case 2u: { return select(activate(3u, x), 0.0, x < -20.0) * y; }
    case 3u: { return binary_swiglu_oai(x, y); }
    default: { return select(activate(4u, x), 0.0, x < -110.0) * y; }
  }
}
