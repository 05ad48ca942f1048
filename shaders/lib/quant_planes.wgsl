// The planes of a quantised matrix, which are a kernel's first bindings.
//
// needs: ScaleWords of a format

@group(0) @binding(0) var<storage, read> quants: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read> high: array<u32>;
@group(0) @binding(2) var<storage, read> scales: array<ScaleWords>;
@group(0) @binding(3) var<storage, read> extra: array<u32>;
