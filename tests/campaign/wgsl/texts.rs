//! The texts that mutations begin with.

use std::sync::OnceLock;

use backend_webgpu::validate;
use backend_webgpu::variants::{Target, all_variants, compose};
use conformance::mutate::mutated_wgsl;

/// Bytes of the longest of the backend's own kernels that are mutated: a driver takes seconds to compile longer ones.
const MOST_BYTES: usize = 6000;

/// Kernels of each kind of statement, binding and memory.
const SMALL: [&str; 9] = [
    "struct Params { alpha: f32, n: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
@compute @workgroup_size(64) fn axpy(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < params.n { y[id.x] += params.alpha * x[id.x]; }
}",
    "struct Histogram { total: atomic<u32>, counts: array<atomic<u32>> }
@group(1) @binding(3) var<storage, read_write> histogram: Histogram;
@group(0) @binding(4) var<storage, read> data: array<vec2<u32>>;
@compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&data) { return; }
    atomicAdd(&histogram.total, 1u);
    atomicMax(&histogram.counts[data[id.x].y % arrayLength(&histogram.counts)], data[id.x].x);
}",
    "var<workgroup> partial: array<f32, 64>;
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> sum: array<f32>;
@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32, @builtin(workgroup_id) group: vec3<u32>) {
    partial[i] = x[min(group.x * 64u + i, arrayLength(&x) - 1u)];
    for (var step = 32u; step > 0u; step >>= 1u) {
        workgroupBarrier();
        if i < step { partial[i] += partial[i + step]; }
    }
    if i == 0u { sum[group.x] = partial[0]; }
}",
    "const N = 4u;
override width: u32 = 3u;
@group(0) @binding(0) var<storage, read_write> x: array<array<vec3<f32>, 4>>;
fn turned(m: mat3x3<f32>, v: vec3<f32>) -> vec3<f32> { return transpose(m) * v; }
@compute @workgroup_size(8, 2, 1) fn main(@builtin(local_invocation_id) id: vec3<u32>) {
    var m = mat3x3<f32>(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0);
    for (var j = 0u; j < N; j++) {
        let v = &x[id.x % arrayLength(&x)][j];
        (*v).y = dot(turned(m, *v), vec3<f32>(f32(width))) / (1.0 + f32(id.y));
        m[j % 3u] = (*v).zyx;
    }
}",
    "@group(0) @binding(0) var<storage, read_write> x: array<i32>;
var<private> seed: u32 = 7u;
fn next() -> u32 { seed = seed * 1664525u + 1013904223u; return seed >> 8u; }
@compute @workgroup_size(16) fn main(@builtin(local_invocation_index) i: u32) {
    var count = 0;
    seed += i;
    loop {
        switch next() % 5u {
            case 0u, 1u: { count += 2; }
            case 2u: { count -= x[next() % arrayLength(&x)]; }
            default: { break; }
        }
        if count > 40 || count < -40 { break; }
        continuing { count++; break if count == 33; }
    }
    while count > 3 { count /= 2; }
    x[i] = select(count, -count, (i & 1u) == 0u);
}",
    "struct Inner { a: vec2<f32>, b: array<u32, 3> }
struct Outer { inner: array<Inner, 2>, last: vec4<i32> }
@group(0) @binding(0) var<storage, read> outer: Outer;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
fn total(inner: Inner) -> u32 { return inner.b[0] + inner.b[1] + inner.b[2]; }
@compute @workgroup_size(4) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    var copied = outer.inner;
    copied[id.x & 1u].b[id.x % 3u] = bitcast<u32>(outer.last[id.x % 4u]);
    y[id.x] = total(copied[0]) * total(copied[1]) + pack2x16float(copied[0].a) + countOneBits(y[id.x]);
}",
    "@group(0) @binding(0) var<storage, read_write> x: array<atomic<i32>, 8>;
var<workgroup> flags: array<atomic<u32>, 4>;
@compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {
    let old = atomicCompareExchangeWeak(&x[i], 3, 5);
    if old.exchanged { atomicOr(&flags[i % 4u], 1u << i); }
    workgroupBarrier();
    let f = workgroupUniformLoad(&flags[1]);
    atomicXor(&x[(i + 1u) % 8u], i32(f) ^ old.old_value);
}",
    "@group(0) @binding(0) var<storage, read_write> x: array<vec4<f32>>;
fn smooth_step(v: vec4<f32>) -> vec4<f32> { return v * v * fma(vec4<f32>(-2.0), v, vec4<f32>(3.0)); }
fn scaled(p: ptr<function, vec4<f32>>, by: f32) { *p *= by; }
@compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&x) { return; }
    var v = clamp(x[id.x], vec4<f32>(), vec4<f32>(1.0));
    scaled(&v, exp2(-f32(id.x)));
    x[id.x] = select(smooth_step(v), sqrt(abs(v)), vec4<bool>(true, false, v.x > v.y, any(v != v)));
}",
    // Lines end with what WGSL knows beside U+000A.
    "// x is doubled\r@group(0) @binding(0) var<storage, read_write> x: array<u32>; // ((\u{2028}\u{85}
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) { // {{\u{b}
    let i = id.x;//\rif i < arrayLength(&x) { //\u{85}x[i] = x[i] + x[i]; //\u{2029}} //\u{c}
}",
];

/// The kernels of the backend that are mutated.
fn own() -> &'static [String] {
    static OWN: OnceLock<Vec<String>> = OnceLock::new();
    OWN.get_or_init(|| {
        let target = Target { immediates: false, unroll: false };
        let texts = all_variants().into_iter().map(|variant| compose(&variant, target));
        texts.filter(|text| text.len() <= MOST_BYTES).collect()
    })
}

/// A text that mutations begin with is right, or most of what they give would be refused for one reason.
///
/// # Errors
/// A small text that is refused, or fewer than half of the backend's own that are taken: the rest need what not every
/// device has.
pub(super) fn are_valid() -> Result<(), String> {
    for text in SMALL {
        validate(text).map_err(|said| format!("{said}\n{text}"))?;
    }
    let taken = own().iter().filter(|text| validate(text).is_ok()).count();
    let all = own().len();
    if 2 * taken < all { Err(format!("{taken} of {all} of the backend's kernels are taken")) } else { Ok(()) }
}

/// The text of a case.
pub(super) fn mutated(seed: u64, case: u64) -> String {
    let own = own();
    // Every third is one of the backend's own, spread over all of them.
    let valid = match (case % 3, own.len()) {
        (0, 1..) => &own[(case as usize / 3).wrapping_mul(7919) % own.len()],
        _ => SMALL[(case as usize) % SMALL.len()],
    };
    mutated_wgsl(&format!("wgsl {seed} {case}"), valid)
}
