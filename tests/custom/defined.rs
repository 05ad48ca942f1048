//! What WGSL defines and the languages below it don't: indices outside of arrays, divisions, conversions, and where
//! the fields of a buffer lie.

use backend_api::{BackendError, ComputeBackend, DiagnosticKind};
use backend_webgpu::{KernelDesc, WebGpuBackend};
use libtest_mimic::Failed;

use super::{expect, read, still_works, upload};

/// What an output holds before.
const STALE: u32 = 0x7fc0_1234;

/// Nothing outside of the bindings is read or written, whatever the index, one that the compiler knows included.
pub(super) fn out_of_bounds(backend: &WebGpuBackend) -> Result<(), Failed> {
    let alignment = backend.device().ok_or("closed")?.limits().min_storage_buffer_offset_alignment as usize;
    let words = alignment.max(16) / 4;
    let beyond = words + 1;
    let text = format!(
        "@group(0) @binding(0) var<storage, read> at: array<u32>;
        @group(0) @binding(1) var<storage, read> secret: array<u32>;
        @group(0) @binding(2) var<storage, read_write> out: array<u32>;
        @group(0) @binding(3) var<storage, read_write> seen: array<u32>;
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            let i = at[id.x];
            seen[id.x] = secret[i] | secret[{beyond}];
            out[i] = 9u;
            out[{beyond}] = 9u;
        }}"
    );
    let kernel = backend.kernel(&KernelDesc::new("out of bounds", text))?;
    let indices =
        [0, words as u32 - 1, words as u32, words as u32 + 1, 2 * words as u32, 1 << 20, 1 << 30, u32::MAX];
    let at = upload(backend, &indices)?;
    // The middle third of each buffer is bound; a secret is around it.
    let secret = upload(backend, &[vec![77; words], vec![1_u32; words], vec![77; words]].concat())?;
    let out = upload(backend, &vec![STALE; 3 * words])?;
    let seen = upload(backend, &vec![STALE; 3 * words.max(8)])?;
    let view = |ptr| backend.view(ptr, words * 4, words * 4);
    let (secret_view, out_view) = (view(secret)?, view(out)?);
    backend.launch(&kernel, &[at, secret_view, out_view, seen], &[], [indices.len() as u32, 1, 1])?;
    let found = read::<u32>(backend, seen, indices.len())?;
    if found.iter().any(|&word| word != 0 && word != 1) {
        return Err(format!("{found:?} was seen, which is outside").into());
    }
    let found = read::<u32>(backend, out, 3 * words)?;
    let is_stale = |part: &[u32]| part.iter().all(|&word| word == STALE);
    if !is_stale(&found[..words]) || !is_stale(&found[2 * words..]) {
        return Err(format!("{found:x?} was written outside").into());
    }
    expect("the first and the last inside", &[found[words], found[2 * words - 1]], &[9, 9])?;
    [at, secret_view, secret, out_view, out, seen].into_iter().try_for_each(|ptr| backend.free(ptr))?;
    Ok(still_works(backend)?)
}

/// An index outside of an array in workgroup memory or of an invocation stays within that array, and its neighbours
/// are as they were.
pub(super) fn neighbours(backend: &WebGpuBackend) -> Result<(), Failed> {
    let text = "
        @group(0) @binding(0) var<storage, read> at: array<u32>;
        @group(0) @binding(1) var<storage, read_write> out: array<array<u32, 8>>;
        var<workgroup> before: array<u32, 32>;
        var<workgroup> tile: array<u32, 8>;
        var<workgroup> rows: array<array<u32, 3>, 4>;
        var<workgroup> behind: array<u32, 32>;
        var<private> own: array<u32, 8>;
        fn put(to: ptr<function, array<u32, 4>>, i: i32) { (*to)[i] = 3u; }
        @compute @workgroup_size(1) fn main(@builtin(workgroup_id) group: vec3<u32>) {
            let i = at[group.x];
            tile[i] = 1u;
            rows[i][i] = 2u;
            workgroupBarrier();
            var local: array<u32, 4>;
            put(&local, i32(i));
            own[i] = 4u;
            var vector = vec3<u32>();
            vector[i] = 5u;
            var matrix = mat2x2<f32>();
            matrix[i][i] = 6.0;
            let seen = array<u32, 3>(tile[i], local[i], vector[i])[i] | (rows[i][i] + own[i]);
            var outside = 0u;
            for (var k = 0u; k < 32u; k++) { outside |= before[k] | behind[k]; }
            var sums = array<u32, 4>();
            for (var k = 0u; k < 8u; k++) { sums[0] += tile[k]; sums[2] += own[k]; }
            for (var k = 0u; k < 12u; k++) { sums[1] += rows[k / 3u][k % 3u]; }
            for (var k = 0u; k < 4u; k++) { sums[3] += local[k]; }
            let both = u32(matrix[0].x + matrix[0].y + matrix[1].x + matrix[1].y);
            out[group.x] = array<u32, 8>(outside, sums[0], sums[1], sums[2], sums[3],
                vector.x + vector.y + vector.z, both, seen);
        }";
    let kernel = backend.kernel(&KernelDesc::new("neighbours", text))?;
    let indices = [0, 1, 2, 3, 4, 8, 9, 12, 13, 30, 1000, 65_536, 1 << 20, 1 << 28, 1 << 31, u32::MAX];
    let at = upload(backend, &indices)?;
    let out = upload(backend, &[STALE; 8 * 16])?;
    backend.launch(&kernel, &[at, out], &[], [16, 1, 1])?;
    let found = read::<u32>(backend, out, 8 * 16)?;
    for (&i, found) in indices.iter().zip(found.chunks(8)) {
        // Where the index is inside, each array has what was stored; else that or nothing.
        let stored = [(1, 8), (2, 3), (4, 8), (3, 4), (5, 3), (6, 2)];
        let is_right = found[0] == 0
            && found[1..7]
                .iter()
                .zip(stored)
                .all(|(&sum, (value, length))| sum == value || (sum == 0 && i >= length))
            && found[7] < 8;
        if !is_right {
            return Err(format!("index {i}: {found:?}").into());
        }
    }
    [at, out].into_iter().try_for_each(|ptr| backend.free(ptr))?;
    Ok(still_works(backend)?)
}

/// WGSL says what an integer divided by 0 is, and by -1 below the least; remainders have the dividend's sign.
pub(super) fn divisions(backend: &WebGpuBackend) -> Result<(), Failed> {
    let text = "
        struct Results { quotients: vec4<i32>, remainders: vec4<i32> }
        @group(0) @binding(0) var<storage, read> x: array<vec2<i32>>;
        @group(0) @binding(1) var<storage, read_write> out: array<Results>;
        @compute @workgroup_size(1) fn main(@builtin(workgroup_id) group: vec3<u32>) {
            let a = x[group.x].x;
            let b = x[group.x].y;
            let vector = vec2<i32>(a, 100) / vec2<i32>(b);
            let unsigned = vec2<u32>(u32(a), 100u) % u32(b);
            out[group.x].quotients = vec4<i32>(a / b, i32(u32(a) / u32(b)), vector.x, a / -7);
            out[group.x].remainders = vec4<i32>(a % b, i32(unsigned.x), i32(unsigned.y), a % 7);
        }";
    let kernel = backend.kernel(&KernelDesc::new("divisions", text))?;
    let numbers = [0, 1, -1, 2, 7, -7, 16, -16, 17, 1 << 30, i32::MAX, i32::MIN, i32::MIN + 1];
    let pairs: Vec<[i32; 2]> = numbers.iter().flat_map(|&a| numbers.map(|b| [a, b])).collect();
    let divide = |a: i32, b: i32| if b == 0 { a } else { a.wrapping_div(b) };
    let remain = |a: i32, b: i32| if b == 0 { 0 } else { a.wrapping_rem(b) };
    let unsigned = |a: i32, b: i32| (a as u32).checked_div(b as u32).unwrap_or(a as u32) as i32;
    let rest = |a: i32, b: i32| (a as u32).checked_rem(b as u32).unwrap_or(0) as i32;
    let want: Vec<[i32; 8]> = pairs
        .iter()
        .map(|&[a, b]| {
            let quotients = [divide(a, b), unsigned(a, b), divide(a, b), divide(a, -7)];
            let remainders = [remain(a, b), rest(a, b), rest(100, b), remain(a, 7)];
            [quotients, remainders].concat().try_into().unwrap_or_default()
        })
        .collect();
    let x = upload(backend, &pairs)?;
    let out = upload(backend, &vec![STALE; 8 * pairs.len()])?;
    backend.launch(&kernel, &[x, out], &[], [pairs.len() as u32, 1, 1])?;
    let found = read::<[i32; 8]>(backend, out, pairs.len())?;
    for ((pair, found), want) in pairs.iter().zip(&found).zip(&want) {
        expect(&format!("{pair:?}"), found, want)?;
    }
    [x, out].into_iter().try_for_each(|ptr| backend.free(ptr))?;
    Ok(still_works(backend)?)
}

/// Numbers beyond the range of an integer become the largest f32 within it.
pub(super) fn conversions(backend: &WebGpuBackend) -> Result<(), Failed> {
    let text = "
        @group(0) @binding(0) var<storage, read> x: array<f32>;
        @group(0) @binding(1) var<storage, read_write> out: array<vec4<u32>>;
        @compute @workgroup_size(1) fn main(@builtin(workgroup_id) group: vec3<u32>) {
            let f = x[group.x];
            let vector = vec2<f32>(f, -f);
            out[group.x] = vec4<u32>(bitcast<u32>(i32(f)), u32(f), bitcast<u32>(vec2<i32>(vector).y), vec2<u32>(vector).y);
        }";
    let kernel = backend.kernel(&KernelDesc::new("conversions", text))?;
    let numbers = [
        0.0,
        0.9,
        -0.9,
        1.5,
        -5.5,
        16_777_217.0,
        2_147_483_520.0,
        2_147_483_648.0,
        -2_147_483_648.0,
        3e9,
        -3e9,
        4_294_967_040.0,
        4_294_967_296.0,
        1e20,
        -1e20,
        f32::MAX,
        f32::MIN,
    ];
    let signed = |f: f32| f.clamp(-2_147_483_648.0, 2_147_483_520.0) as i32 as u32;
    let unsigned = |f: f32| f.clamp(0.0, 4_294_967_040.0) as u32;
    let x = upload(backend, &numbers)?;
    let out = upload(backend, &vec![STALE; 4 * numbers.len()])?;
    backend.launch(&kernel, &[x, out], &[], [numbers.len() as u32, 1, 1])?;
    let found = read::<[u32; 4]>(backend, out, numbers.len())?;
    for (f, found) in numbers.into_iter().zip(found) {
        expect(&f.to_string(), &found, &[signed(f), unsigned(f), signed(-f), unsigned(-f)])?;
    }
    [x, out].into_iter().try_for_each(|ptr| backend.free(ptr))?;
    Ok(still_works(backend)?)
}

/// Whether OpenGL can have it, structures, a variable's space and type, what is read of it, and the words that this is
/// at.
type Layout = (bool, &'static str, &'static str, &'static str, &'static [u32]);

/// Fields lie where reflection says. OpenGL has layouts of its own, by which some structures can't be laid out, which
/// is said.
pub(super) fn layouts(backend: &WebGpuBackend) -> Result<(), Failed> {
    let is_gl = backend.device_info()?.api == "Gl";
    let cases: [Layout; 7] = [
        (
            true,
            "struct Q { a: vec3<f32>, b: f32, c: vec2<f32> } struct P { x: f32, m: mat2x2<f32>, q: array<Q> }",
            "storage, read> p: P",
            "p.x, p.m[1].y, p.q[1].a.z, p.q[1].b, p.q[1].c.y, f32(arrayLength(&p.q))",
            &[0, 5, 18, 19, 21, 2],
        ),
        (
            true,
            "struct P { a: f32, v: vec3<f32>, n: mat3x3<f32>, e: f32 }",
            "uniform> p: P",
            "p.a, p.v.z, p.n[2].y, p.e",
            &[0, 6, 17, 20],
        ),
        (true, "", "uniform> p: array<vec4<f32>, 4>", "p[3].w, p[1].x", &[15, 4]),
        (
            false,
            "struct P { a: f32, @align(16) b: f32, @size(16) c: f32, d: f32 }",
            "storage, read> p: array<P>",
            "p[0].b, p[1].a, p[1].b, p[1].c, p[1].d, f32(arrayLength(&p))",
            &[4, 12, 16, 17, 21, 2],
        ),
        (
            false,
            "struct P { a: f32, @align(16) b: f32, @size(16) c: f32, d: f32 }",
            "uniform> p: P",
            "p.a, p.b, p.c, p.d",
            &[0, 4, 5, 9],
        ),
        (
            false,
            "struct P { @size(32) x: f32 }",
            "storage, read> p: array<P>",
            "p[1].x, f32(arrayLength(&p))",
            &[8, 3],
        ),
        (
            false,
            "struct P { a: f32, m: mat2x2<f32>, n: mat3x2<f32>, e: f32 }",
            "uniform> p: P",
            "p.m[1].x, p.n[1].y, p.n[2].x, p.e",
            &[4, 9, 10, 12],
        ),
    ];
    for (is_everywhere, types, variable, reads, words) in cases {
        let text = format!(
            "{types}
@group(0) @binding(0) var<{variable};
@group(0) @binding(1) var<storage, read_write> out: array<f32, {count}>;
@compute @workgroup_size(1) fn main() {{ out = array<f32, {count}>({reads}); }}",
            count = words.len()
        );
        let kernel = match backend.kernel(&KernelDesc::new("layouts", text)) {
            Err(BackendError::Kernel { source, .. }) if is_gl && !is_everywhere => {
                let line = source.place.as_ref().map_or(0, |place| place.line);
                expect(variable, &(source.kind, line), &(DiagnosticKind::Unsupported, 2))?;
                continue;
            }
            other => other?,
        };
        if is_gl && !is_everywhere {
            return Err(format!("{types}{variable} is taken on OpenGL").into());
        }
        let out = upload(backend, &vec![STALE; words.len()])?;
        let numbers: Vec<f32> = (0..24_u8).map(f32::from).collect();
        if let Some(params) = kernel.params() {
            let bytes: &[u8] = bytemuck::cast_slice(&numbers);
            let bytes = [bytes, &[0; 32]].concat();
            backend.launch(&kernel, &[out], bytes.get(..params.bytes).ok_or("parameters")?, [1, 1, 1])?;
        } else {
            let p = upload(backend, &numbers)?;
            backend.launch(&kernel, &[p, out], &[], [1, 1, 1])?;
            backend.free(p)?;
        }
        let want: Vec<f32> = words.iter().map(|&word| word as f32).collect();
        expect(&format!("{types}{variable}"), &read::<f32>(backend, out, words.len())?, &want)?;
        backend.free(out)?;
    }
    Ok(still_works(backend)?)
}
