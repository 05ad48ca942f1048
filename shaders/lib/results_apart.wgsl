// Results of a convolution that are written one by one.
//
// needs: TC, lib/conv

@group(0) @binding(5) var<storage, read_write> output: array<TC>;

// The results of `count` filters from `f` on, at least one, at a pixel; the first is written at `at`.
fn write_results(at: u32, f: u32, count: u32, sums: vec4<f32>) {
  let step = select(params.pixels, 1u, params.interleaved == 1u);
  output[at] = TC(finish(sums.x, f));
  if count > 1u { output[at + step] = TC(finish(sums.y, f + 1u)); }
  if count > 2u { output[at + 2u * step] = TC(finish(sums.z, f + 2u)); }
  if count > 3u { output[at + 3u * step] = TC(finish(sums.w, f + 3u)); }
}
