//! What is said of common mistakes, in the words of WGSL.

use backend_webgpu::validate;

use super::texts::{MAIN, OUT, body};

/// A mistake, with all that is said as its reason, and its line.
fn mistakes() -> Vec<(String, &'static str, usize)> {
    let with = |declared: &str, statements: &str| format!("{OUT}{declared}\n{MAIN} {{\n{statements}\n}}\n");
    vec![
        (
            with("fn f(x: u32) -> vec2<f32> { if x > 1u { return vec2<f32>(); } }", "out[0] = u32(f(1u).x);"),
            "`f` has to return vec2<f32>, and ends here without a value",
            2,
        ),
        (
            with("fn f() -> u32 { let x = 1.5f; return x; }", "out[0] = f();"),
            "`f` has to return u32, and this is f32",
            2,
        ),
        (body("var x: array<u32, 4>;\nx[4] = i;"), "index 4 is out of the bounds of `x`: array<u32, 4>", 4),
        (
            with("var<workgroup> tile: array<vec2<f32>, 4>;", "out[0] = u32(tile[9].x);"),
            "index 9 is out of the bounds of `tile`: array<vec2<f32>, 4>",
            4,
        ),
        (body("let x = f32(i);\nlet y = i32(i);\nout[i] = u32(x * y);"), "`*` can't take f32 and i32", 5),
        (
            body("if i < 2.5 { out[0] = 1u; }"),
            "`<` can't take 2.5 and u32: both sides of an operator have one type, as in f32(i) * 2.5",
            3,
        ),
        (body("out[i] = i;\nreturn 1;"), "`main` returns a value, but declares no result", 4),
        (body("out[i] = i;\nreturn i;"), "`main` returns a value, but declares no result", 4),
        (
            format!(
                "@group(0) @binding(0) var<storage, read_write> x: array<bool>;\n{MAIN} {{ x[0] = true; }}"
            ),
            "`x` is array<bool>, and a buffer can't hold bool: u32 can stand for it",
            1,
        ),
        (
            format!("enable f16;\n{OUT}{MAIN} {{\nout[i] = u32(f16(i)); }}"),
            "`f16` is an optional feature, which isn't there",
            4,
        ),
        (
            format!("enable f16;\n{OUT}{MAIN} {{\nvar x: f16;\nout[i] = u32(x); }}"),
            "`f16` is an optional feature, which isn't there",
            4,
        ),
        (
            format!("enable f16;\n{OUT}const SCALE = 2.0h;\n{MAIN} {{ out[i] = u32(SCALE); }}"),
            "`f16` is an optional feature, which isn't there",
            0,
        ),
        (
            with("@group(0) @binding(1) var<uniform> p: array<vec4<u32>>;", "out[i] = p[0].x;"),
            "`p` is array<vec4<u32>>, which var<uniform> can't hold",
            2,
        ),
        (
            with("fn f(a: u32, count: i32) -> u32 { return a; }", "out[0] = f(1u, 2.5f);"),
            "the argument `count` of `f` is i32, and f32 is given",
            4,
        ),
        (
            with("fn f(a: u32, count: i32) -> u32 { return a; }", "out[0] = f(1u);"),
            "`f` takes 2 arguments, and 1 are given",
            4,
        ),
        (body("if i { out[0] = 1u; }"), "a condition has to be a boolean, and this is u32", 3),
        (
            with("@group(0) @binding(0) var<storage, read> x: array<u32>;", "out[0] = x[0];"),
            "`x` has the binding of `out`: both are @group(0) @binding(0)",
            2,
        ),
        (
            format!("enable /* of WGSL */ subgroups;\n{}", body("out[i] = subgroupAdd(i);")),
            "`enable subgroups` can't be written here: leave it out",
            1,
        ),
    ]
}

/// Reasons are told as they are here, and notes without the numbers by which a compiler knows its own.
pub(super) fn told() -> Result<(), String> {
    let mut failures = Vec::new();
    for (text, reason, line) in mistakes() {
        let Err(said) = validate(&text) else {
            failures.push(format!("taken for right:\n{text}"));
            continue;
        };
        let found = said.place.as_ref().map_or(0, |place| place.line);
        let has_internals = |note: &String| {
            ["[0]", "[1]", "[2]", "[3]", "see msg", "Naga", "''"].iter().any(|part| note.contains(part))
        };
        if said.reason != reason || (line != 0 && found != line) || said.notes.iter().any(has_internals) {
            failures.push(format!("expected {reason:?} in line {line}, got in line {found}:\n{said}"));
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n\n")) }
}
