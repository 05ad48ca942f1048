// Results of a convolution that are written four at once: those of adjacent channels, whose number is a
// multiple of four, as is the output's offset.
//
// needs: TC, lib/conv

@group(0) @binding(5) var<storage, read_write> output: array<vec4<TC>>;

// The results of four filters from `f` on at a pixel; the first is written at `at`.
fn write_results(at: u32, f: u32, count: u32, sums: vec4<f32>) {
  let v = vec4<f32>(finish(sums.x, f), finish(sums.y, f + 1u), finish(sums.z, f + 2u), finish(sums.w, f + 3u));
  output[at / 4u] = vec4<TC>(v);
}
