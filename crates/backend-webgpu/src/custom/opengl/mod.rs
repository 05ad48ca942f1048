//! OpenGL, whose language leaves undefined what WGSL defines, and which lays out buffers by rules of its own.
//!
//! ```text
//! layouts    buffers that WGSL lays out otherwise than std140 and std430 are refused
//! rewrite    indices, divisions and conversions become such as GLSL defines
//! operands   the handles within naga's expressions and statements
//! ```

mod layouts;
mod operands;
mod rewrite;

use backend_api::Diagnostic;
use naga::Module;

use super::check::Checked;

/// Makes a kernel mean on OpenGL what it means elsewhere.
///
/// # Errors
/// [`Unsupported`](backend_api::DiagnosticKind::Unsupported), at the variable that OpenGL can't have.
pub(super) fn translate(checked: &mut Checked, text: &str) -> Result<(), Diagnostic> {
    layouts::check(&checked.module, checked.bindings.iter().copied().chain(checked.params), text)?;
    let Module { functions, entry_points, types, .. } = &mut checked.module;
    for (handle, function) in functions.iter_mut() {
        rewrite::function(function, types, &checked.info[handle])?;
    }
    for (index, entry) in entry_points.iter_mut().enumerate() {
        rewrite::function(&mut entry.function, types, checked.info.get_entry_point(index))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use naga::valid::{Capabilities, ValidationFlags, Validator};

    use super::super::check::check;
    use super::super::{KernelDesc, KernelLimits};
    use super::*;

    fn translated(text: &str) -> Result<Module, Diagnostic> {
        let mut checked = check(&KernelDesc::new("kernel", text), &KernelLimits::default())?;
        translate(&mut checked, text)?;
        let valid = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&checked.module);
        valid.map_err(|error| Diagnostic::new(error.emit_to_string(text)))?;
        Ok(checked.module)
    }

    /// Every kind of expression and statement that a kernel for OpenGL may have stays valid.
    #[test]
    fn what_is_rewritten_is_valid() {
        let text = "
            struct Cell { weights: array<vec3<f32>, 4>, count: i32 }
            struct Grid { total: atomic<u32>, cells: array<Cell> }
            @group(0) @binding(0) var<storage, read_write> grid: Grid;
            @group(0) @binding(1) var<storage, read_write> out: array<i32>;
            var<workgroup> tile: array<array<i32, 4>, 8>;
            var<workgroup> sum: atomic<i32>;
            var<workgroup> shared_length: u32;
            var<private> own: mat3x3<f32>;
            fn pick(row: ptr<function, array<i32, 4>>, at: i32) -> i32 { return (*row)[at]; }
            @compute @workgroup_size(8) fn main(@builtin(local_invocation_id) id: vec3<u32>) {
                let i = out[id.x];
                var local = array<i32, 4>(1, 2, i, 4);
                local[i] += pick(&local, i) / i;
                tile[i][id.x] = local[0] % i;
                let quotient = vec3<i32>(i, 7, -7) / vec3<i32>(i, 2, local[1]) % vec3(i);
                let unsigned = vec2<u32>(id.xy) / id.yz % id.x;
                own[i][id.x] = f32(quotient.x);
                workgroupBarrier();
                let length = workgroupUniformLoad(&shared_length);
                var scaled = vec3<f32>(own[i]);
                for (var nth = 0u; nth < length / 2u; nth++) {
                    switch tile[nth][i] {
                        case 0: { continue; }
                        case 1, 2: { scaled[nth] *= 0.5; }
                        default: { if scaled.x > 3.0 { break; } }
                    }
                }
                loop {
                    scaled.x -= 1.0;
                    continuing { break if scaled.x < 0.0; }
                }
                atomicAdd(&sum, i);
                let seen = atomicCompareExchangeWeak(&grid.total, id.x, u32(scaled.x));
                grid.cells[id.y].weights[i] = select(scaled, own[0], seen.exchanged);
                grid.cells[2].count = i32(scaled.y) + vec3<i32>(scaled).z + i32(all(unsigned > vec2(1u)));
                out[5] = quotient[i] + i32(arrayLength(&out)) + tile[3][1] / 3;
            }";
        let module = translated(text).unwrap();
        assert!(module.entry_points[0].function.expressions.len() > 100);
    }

    fn is_refused(text: &str, line: usize, part: &str) {
        let said = translated(text).unwrap_err();
        let at = said.place.as_ref().map_or(0, |place| place.line);
        assert!(at == line && said.reason.contains(part), "{said}");
        assert_eq!(said.kind, backend_api::DiagnosticKind::Unsupported);
    }

    #[test]
    fn buffers_that_lie_otherwise_are_refused() {
        const MAIN: &str = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
            @compute @workgroup_size(1) fn main() { out[0] = VALUE; }";
        let kernel = |ty: &str, space: &str, value: &str| {
            format!("{ty}\n@group(0) @binding(1) var<{space}> p: P;\n{}", MAIN.replace("VALUE", value))
        };
        for (ty, part) in [
            ("struct P { a: u32, @align(16) b: u32 }", "`b` of `P` begins at byte 16"),
            ("struct P { @size(32) a: u32, b: u32 }", "`b` of `P` begins at byte 32"),
        ] {
            is_refused(&kernel(ty, "uniform", "p.b"), 2, part);
            is_refused(&kernel(ty, "storage", "p.b"), 2, part);
        }
        let nested = "struct Q { a: u32, @size(12) b: u32 } struct P { q: Q, b: u32 }";
        is_refused(&kernel(nested, "storage", "p.b"), 2, "`b` of `P` begins at byte 16");
        is_refused(&kernel("struct P { b: u32, m: mat2x2<f32> }", "uniform", "p.b"), 2, "mat2x2<f32>");
        is_refused(
            &kernel("struct I { @size(32) x: u32 } alias P = array<I>;", "storage", "p[1].x"),
            2,
            "32 bytes",
        );
        let fits = [
            (nested, "uniform"),
            ("struct P { b: u32, m: mat2x2<f32>, n: array<mat4x2<f32>, 2> }", "storage"),
            ("struct P { b: u32, m: mat2x3<f32>, n: array<mat4x3<f32>, 2> }", "storage"),
            ("struct Q { a: vec3<f32>, b: f32, c: vec2<u32> } struct P { b: u32, q: array<Q> }", "storage"),
            ("struct P { a: vec3<f32>, b: u32, c: vec2<u32>, m: mat3x3<f32>, n: mat2x4<f32> }", "uniform"),
            ("struct P { b: u32, a: array<vec4<u32>, 3>, c: vec3<f32> }", "uniform"),
        ];
        for (ty, space) in fits {
            assert!(translated(&kernel(ty, space, "p.b")).is_ok(), "{ty}");
        }
    }
}
