//! Kernels that are wrong, each with its line and a word of the reason.

use backend_api::DiagnosticKind::{self, Constant, EntryPoint, Limit, Uniformity, Unsupported, Wgsl};

/// A wrong text: its name, the text, the kind of fault, the line of it, and a part of what is said.
pub(super) type Wrong = (&'static str, String, DiagnosticKind, usize, &'static str);

pub(super) const OUT: &str = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;\n";
pub(super) const MAIN: &str = "@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32)";

/// `OUT` is line 1, `MAIN` with the start of its body line 2.
pub(super) fn body(statements: &str) -> String {
    format!("{OUT}{MAIN} {{\n{statements}\n}}\n")
}

pub(super) fn all() -> Vec<Wrong> {
    vec![
        ("syntax", body("let x = ;"), Wgsl, 3, "expected expression"),
        ("an end that is missing", format!("{OUT}{MAIN} {{\n out[0] = 1u;\n"), Wgsl, 4, "expected"),
        ("no WGSL at all", "__global__ void f() {}".to_owned(), Wgsl, 1, "__global__"),
        ("an unknown name", body("out[0] = 1u;\nout[1] = nowhere;"), Wgsl, 4, "nowhere"),
        ("a type", body("out[i] = 1.5;"), Wgsl, 3, ""),
        ("an operator", body("out[i] = i * 2.5f;"), Wgsl, 3, ""),
        (
            "a store to what is read",
            format!("@group(0) @binding(0) var<storage, read> x: array<u32>;\n{MAIN} {{\nx[0] = 1u;\n}}"),
            Wgsl,
            3,
            "`x` is var<storage, read>: what is written is var<storage, read_write>",
        ),
        (
            "a store to parameters in a function",
            format!(
                "{OUT}@group(0) @binding(1) var<uniform> p: vec2<u32>;\nfn f() {{\np.y = 1u; }}\n\
                 {MAIN} {{ f(); out[0] = p.x; }}"
            ),
            Wgsl,
            // naga tells where the function is.
            3,
            "`p` is var<uniform>, which can't be written",
        ),
        (
            "an array that is too large",
            format!(
                "{OUT}\n@group(0) @binding(1) var<storage, read> x: array<u32, 2000000000>;\n{MAIN} {{ out[0] = x[0]; }}"
            ),
            Limit,
            3,
            "exceeds limit of 2147483647 bytes",
        ),
        (
            "a structure that is too large",
            format!(
                "{OUT}\nstruct S {{ a: array<u32, 500000000>,\n b: array<u32, 500000000> }}\n\
                 @group(0) @binding(1) var<storage, read> x: S;\n{MAIN} {{ out[0] = x.a[0]; }}"
            ),
            Wgsl,
            3,
            "type is too large",
        ),
        (
            "a recursion",
            format!("{OUT}fn f(n: u32) -> u32 {{\nreturn f(n);\n}}\n{MAIN} {{\nout[0] = f(1u); }}"),
            Wgsl,
            2,
            "recursive",
        ),
        (
            "a result that is missing",
            format!("{OUT}fn f() -> u32 {{\n}}\n{MAIN} {{ out[0] = f(); }}"),
            Wgsl,
            2,
            "",
        ),
        (
            "an index that is known to be outside",
            format!("{OUT}{MAIN} {{\nvar x: array<u32, 4>;\nx[5] = 1u;\nout[0] = x[0]; }}"),
            Wgsl,
            4,
            "bound",
        ),
        (
            "a bool in a buffer",
            format!(
                "@group(0) @binding(0) var<storage, read_write> x: array<bool>;\n{MAIN} {{\nx[0] = true;\n}}"
            ),
            Wgsl,
            1,
            "",
        ),
        (
            "two variables of one binding",
            format!(
                "{OUT}@group(0) @binding(0) var<storage, read> x: array<u32>;\n{MAIN} {{\nout[0] = x[0]; }}"
            ),
            Wgsl,
            2,
            "",
        ),
        (
            "a buffer without a binding",
            format!("var<storage, read_write> x: array<u32>;\n{MAIN} {{ x[0] = 1u; }}"),
            Wgsl,
            1,
            "Binding",
        ),
        ("atomics on what is none", body("atomicAdd(&out[0], 1u);"), Wgsl, 3, "atomic"),
        (
            "an array's end in the middle",
            format!(
                "struct S {{ a: array<u32>, b: u32 }}\n@group(0) @binding(0) var<storage, read_write> s: S;\n\
             {MAIN} {{ s.b = 1u; }}"
            ),
            Wgsl,
            1,
            "",
        ),
        ("no entry point", format!("{OUT}fn main() {{ out[0] = 1u; }}"), EntryPoint, 0, "no entry point"),
        (
            "a vertex shader",
            "@vertex\nfn main() -> @builtin(position) vec4<f32> { return vec4<f32>(); }".to_owned(),
            EntryPoint,
            2,
            "compute",
        ),
        (
            "two entry points",
            format!(
                "{OUT}@compute @workgroup_size(1) fn a() {{ out[0] = 1u; }}\n@compute @workgroup_size(1) fn b() {{ }}"
            ),
            EntryPoint,
            3,
            "`a`, `b`",
        ),
        (
            "a result",
            format!(
                "{OUT}@compute @workgroup_size(1)\nfn main() -> @location(0) u32 {{ out[0] = 1u; return 1u; }}"
            ),
            Wgsl,
            3,
            "has a result",
        ),
        (
            "an input of graphics",
            format!("{OUT}@compute @workgroup_size(1)\nfn main(@location(0) x: u32) {{ out[0] = x; }}"),
            Wgsl,
            3,
            "@location",
        ),
        (
            "an input of graphics in a structure",
            format!(
                "{OUT}struct In {{ @location(0) x: u32 }}\n@compute @workgroup_size(1)\n\
                 fn main(x: In) {{ out[0] = x.x; }}"
            ),
            Wgsl,
            4,
            "@location",
        ),
        (
            "a function's name in comments",
            format!(
                "// fn main\n{OUT}/* fn main() */\n@compute @workgroup_size(64, 64)\nfn\nmain() {{ out[0] = 1u; }}"
            ),
            Limit,
            6,
            "4096",
        ),
        ("a number as a condition", body("let x = i;\n\nif x { out[0] = 1u; }"), Wgsl, 5, "boolean"),
        (
            "a result of another type",
            format!("{OUT}fn f() -> u32 {{\nlet x = 1.5f;\n\nreturn x;\n}}\n{MAIN} {{ out[0] = f(); }}"),
            Wgsl,
            5,
            "",
        ),
        ("an index into a number", body("let x = 2.0;\n\nout[0] = u32(x[i]);"), Wgsl, 5, ""),
        ("two equal cases", body("\nswitch i { case 1u: {} case 1u: {} default: {} }"), Wgsl, 4, ""),
        ("two defaults", body("\nswitch i { case 1u: {} default: {} default: {} }"), Wgsl, 4, ""),
        ("a fragment's statement", body("\nif i > 3u { discard; }"), Wgsl, 4, ""),
        (
            "an array of arrays without a length",
            format!(
                "{OUT}@group(0) @binding(1) var<storage> x: array<array<u32>>;\n{MAIN} {{ out[0] = x[0][0]; }}"
            ),
            Wgsl,
            2,
            "",
        ),
        (
            "atomics of floats",
            format!(
                "{OUT}\nvar<workgroup> x: array<atomic<f32>, 4>;\n{MAIN} {{ out[0] = u32(atomicLoad(&x[0])); }}"
            ),
            Unsupported,
            3,
            "",
        ),
        (
            "a uniform load of each invocation's own",
            format!(
                "{OUT}var<workgroup> w: array<u32, 64>;\n{MAIN} {{\nw[i] = i;\n\
                 let v = workgroupUniformLoad(&w[i]);\nif v < 32u {{ workgroupBarrier(); }}\nout[i] = v; }}"
            ),
            Uniformity,
            5,
            "pointer",
        ),
        ("no workgroup size", format!("{OUT}@compute fn main() {{ out[0] = 1u; }}"), Wgsl, 2, "workgroup"),
        (
            "a workgroup of nothing",
            format!("{OUT}@compute @workgroup_size(0) fn main() {{ out[0] = 1u; }}"),
            Wgsl,
            2,
            "",
        ),
        (
            "a workgroup of many",
            format!("{OUT}\n@compute @workgroup_size(64, 64) fn main() {{ out[0] = 1u; }}"),
            Limit,
            3,
            "4096",
        ),
        (
            "a workgroup that is long",
            format!("{OUT}@compute @workgroup_size(1, 1, 2000) fn main() {{ out[0] = 1u; }}"),
            Limit,
            2,
            "along z is 2000",
        ),
        (
            "workgroup memory",
            format!(
                "{OUT}var<workgroup> a: array<u32, 16>;\nvar<workgroup> b: array<u32, 999999>;\n\
             {MAIN} {{ b[i] = a[i]; out[0] = b[0]; }}"
            ),
            Limit,
            3,
            "4000064",
        ),
        (
            "private memory",
            format!("{OUT}{MAIN} {{\nvar hog: array<u32, 99999>;\nout[0] = hog[i]; }}"),
            Limit,
            3,
            "399996",
        ),
        (
            "private variables",
            format!("{OUT}var<private> hog: array<u32, 99999>;\n{MAIN} {{ out[0] = hog[i]; }}"),
            Limit,
            2,
            "399996",
        ),
        (
            "a large array as a value",
            body("let v = array<u32, 3000>();\n\nout[i] = v[out[i]];"),
            Limit,
            5,
            "12000",
        ),
        (
            "a large table",
            format!("{OUT}const T = array<u32, 3000>();\n{MAIN} {{\nout[i] = T[i] + T[i + 1u]; }}"),
            Limit,
            4,
            "is 12000",
        ),
        (
            "a large argument",
            format!(
                "{OUT}alias A = array<u32, 3000>;\nfn f(a: A) -> u32 {{ return a[1]; }}\n{MAIN} {{ out[0] = f(A()); }}"
            ),
            Limit,
            3,
            "12000",
        ),
        ("bindings", bindings(9), Limit, 9, "number of storage buffers is 9"),
        ("a group", OUT.replace("group(0)", "group(99)") + MAIN + "{ out[0] = 1u; }", Limit, 1, "99"),
        (
            "parameters",
            format!(
                "{OUT}@group(0) @binding(1) var<uniform> p: array<vec4<u32>, 9>;\n{MAIN} {{ out[0] = p[0].x; }}"
            ),
            Limit,
            2,
            "144",
        ),
        (
            "two blocks of parameters",
            format!(
                "{OUT}@group(0) @binding(1) var<uniform> p: u32;\n@group(0) @binding(2) var<uniform> q: u32;\n\
             {MAIN} {{ out[0] = p + q; }}"
            ),
            Unsupported,
            3,
            "second block",
        ),
        (
            "a texture",
            format!(
                "{OUT}@group(0) @binding(1) var t: texture_2d<f32>;\n\
             {MAIN} {{ out[0] = u32(textureLoad(t, vec2<u32>(), 0).x); }}"
            ),
            Unsupported,
            2,
            "buffer",
        ),
        (
            "a feature that no device has",
            format!("{OUT}var<private> x: f64;\n{MAIN} {{ out[0] = u32(x); }}"),
            Unsupported,
            0,
            "",
        ),
        (
            "a constant without a value",
            format!("{OUT}override N: u32;\n{MAIN} {{ out[0] = N; }}"),
            Constant,
            2,
            "N",
        ),
        (
            "a barrier in a branch",
            body("if i < 32u {\nworkgroupBarrier();\n}\nout[i] = i;"),
            Uniformity,
            4,
            "barrier",
        ),
        (
            "a barrier after a return",
            body("if out[i] > 32u { return; }\n\nstorageBarrier();"),
            Uniformity,
            5,
            "barrier",
        ),
        (
            "brackets",
            body(&format!("out[0] = {}1u{};", "(".repeat(10_000), ")".repeat(10_000))),
            Limit,
            3,
            "nested",
        ),
        ("a chain", body(&format!("out[0] = 1u{};", " + i".repeat(10_000))), Limit, 3, "operators"),
        ("blocks", body(&format!("{}{}", "{".repeat(10_000), "}".repeat(10_000))), Limit, 3, "nested"),
        ("a long text", " ".repeat(2 << 20), Limit, 0, "bytes"),
        ("nothing", String::new(), EntryPoint, 0, "no entry point"),
        (
            "an unknown extension",
            format!("enable teleportation;\n{OUT}{MAIN} {{ out[0] = 1u; }}"),
            Wgsl,
            1,
            "teleportation",
        ),
        (
            "a large constant array",
            format!("{OUT}var<private> a: array<u32, 4294967295>;\n{MAIN} {{ out[0] = a[i]; }}"),
            Limit,
            2,
            "exceeds limit of 2147483647 bytes",
        ),
    ]
}

fn bindings(count: usize) -> String {
    let declared: String = (0..count)
        .map(|i| format!("@group(0) @binding({i}) var<storage, read_write> b{i}: array<u32>;\n"))
        .collect();
    let used: String = (0..count).map(|i| format!("b{i}[0] = 1u; ")).collect();
    format!("{declared}{MAIN} {{ {used} }}")
}
