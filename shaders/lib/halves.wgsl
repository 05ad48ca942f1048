// Four numbers of f16 from their bits.
//
// WGSL as naga has it goes through f32, which changes no number. In SPIR-V, `vec2<f16>(unpack2x16float(x))` becomes a
// bitcast (src/kernels/spirv.rs), which compilers schedule more freely.

fn halves(bits: vec2<u32>) -> vec4<f16> {
  return vec4<f16>(vec2<f16>(unpack2x16float(bits.x)), vec2<f16>(unpack2x16float(bits.y)));
}
