// Results of a convolution whose channels are planes of a multiple of four pixels, as is the output's offset:
// those of a filter at four pixels are written at once.
//
// needs: TC, lib/conv

@group(0) @binding(5) var<storage, read_write> output: array<vec4<TC>>;

// The results of the filter `f`; the first is written at `at`.
fn write_results(at: u32, f: u32, count: u32, sums: vec4<f32>) {
  let v = vec4<f32>(finish(sums.x, f), finish(sums.y, f), finish(sums.z, f), finish(sums.w, f));
  output[at / 4u] = vec4<TC>(v);
}
