//! Kernels that are wrong, each with its line and a word of the reason.

use backend_api::DiagnosticKind::{self, Constant, EntryPoint, Limit, Uniformity, Unsupported, Wgsl};
use backend_api::{BackendError, ComputeBackend, Diagnostic};
use backend_webgpu::{KernelDesc, KernelLimits, WebGpuBackend, validate, validate_kernel};
use libtest_mimic::Failed;

use super::still_works;

/// A wrong text: its name, the text, the kind of fault, the line of it, and a part of what is said.
type Wrong = (&'static str, String, DiagnosticKind, usize, &'static str);

const OUT: &str = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;\n";
const MAIN: &str = "@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32)";

/// `OUT` is line 1, `MAIN` with the start of its body line 2.
fn body(statements: &str) -> String {
    format!("{OUT}{MAIN} {{\n{statements}\n}}\n")
}

fn all() -> Vec<Wrong> {
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
            Wgsl,
            0,
            "",
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

fn check(name: &str, said: &Diagnostic, kind: DiagnosticKind, line: usize, part: &str) -> Result<(), String> {
    let found = said.place.as_ref().map_or(0, |place| place.line);
    // Which line a structure or a constant is told at is the compiler's; 0 takes any.
    let is_line = line == 0 || found == line;
    let text = said.to_string();
    if said.kind == kind && is_line && text.contains(part) && !said.reason.is_empty() {
        Ok(())
    } else {
        Err(format!("{name}: expected {kind:?} in line {line} with {part:?}, got {:?}:\n{text}", said.kind))
    }
}

pub(super) fn texts(backend: &WebGpuBackend) -> Result<(), Failed> {
    let (mut failures, before) = (Vec::new(), backend.memory_stats().in_use);
    for (name, wgsl, kind, line, part) in all() {
        let checked = match backend.kernel(&KernelDesc::new(name, wgsl)) {
            Ok(_) => Err(format!("{name} is taken for right")),
            Err(BackendError::Kernel { name: told, source, .. }) if told == name => {
                check(name, &source, kind, line, part)
            }
            Err(other) => Err(format!("{name}: {other:?}")),
        };
        failures.extend(checked.err());
    }
    still_works(backend)?;
    super::expect("memory in use", &backend.memory_stats().in_use, &before)?;
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n\n").into()) }
}

pub(super) fn without_a_device() -> Result<(), Failed> {
    let mut failures = Vec::new();
    for (name, wgsl, kind, line, part) in all() {
        let checked = match validate(&wgsl) {
            Ok(_) => Err(format!("{name} is taken for right")),
            Err(said) => check(name, &said, kind, line, part),
        };
        failures.extend(checked.err());
    }
    let two = "@compute @workgroup_size(1) fn a() {}\n@compute @workgroup_size(2) fn b() {}";
    let report = |name: &str| {
        validate_kernel(&KernelDesc::new("two", two).with_entry_point(name), &KernelLimits::default())
    };
    super::expect("the size of `b`", &report("b")?.workgroup_size, &[2, 1, 1])?;
    match report("c") {
        Ok(_) => failures.push("an entry point that isn't there".to_owned()),
        Err(said) => failures.extend(check("another entry point", &said, EntryPoint, 0, "`a`, `b`").err()),
    }
    let sized = format!(
        "{OUT}override SIZE: u32 = 4;\n@id(7) override SCALE: f32 = 1;\n{MAIN} {{ out[0] = SIZE + u32(SCALE); }}"
    );
    for (constant, value, line, part) in [
        ("SIZ", 1.0, 0, "there is no constant `SIZ`, but SIZE: u32, 7: f32"),
        ("SCALE", 1.0, 0, "there is no constant `SCALE`, but SIZE: u32, 7: f32"),
        ("SIZE", -1.0, 2, "`SIZE` is u32, into which -1 doesn't fit"),
        ("7", f64::NAN, 3, "`7` is f32, into which NaN doesn't fit"),
    ] {
        let desc = KernelDesc::new("sized", &*sized).with_constant(constant, value);
        match validate_kernel(&desc, &KernelLimits::default()) {
            Ok(_) => failures.push(format!("{constant} = {value}")),
            Err(said) => failures.extend(check(constant, &said, Constant, line, part).err()),
        }
    }
    let number = OUT.replace("binding(0)", "binding(9999)") + MAIN + "{ out[0] = 1u; }";
    match validate(&number) {
        Ok(_) => failures.push("a binding's number".to_owned()),
        Err(said) => failures.extend(check("a binding's number", &said, Limit, 1, "9999").err()),
    }
    // Each call looks at the next function twice: 2⁶⁰ ways through them.
    let mut text = body("if f0(i) > 0u { workgroupBarrier(); }");
    for i in 0..60 {
        text.push_str(&format!("fn f{i}(x: u32) -> u32 {{ return f{n}(x) + f{n}(x); }}\n", n = i + 1));
    }
    text.push_str("fn f60(x: u32) -> u32 { return x; }");
    match validate(&text) {
        Ok(_) => failures.push("a barrier behind many calls".to_owned()),
        Err(said) => failures.extend(check("many calls", &said, Uniformity, 3, "").err()),
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n\n").into()) }
}

/// What needs a feature is refused where the device lacks it, and only there.
pub(super) fn features(backend: &WebGpuBackend) -> Result<(), Failed> {
    let device = backend.device().ok_or("closed")?;
    let f16 = format!("enable f16;\n{OUT}\n{MAIN} {{ out[i] = u32(f16(i) * 2.0h); }}");
    let immediate = format!("{OUT}var<immediate> p: u32;\n{MAIN} {{ out[i] = p; }}");
    let subgroup = body("out[i] = subgroupAdd(i);");
    for (name, text, feature) in [
        ("f16", f16, wgpu::Features::SHADER_F16),
        ("immediates", immediate, wgpu::Features::IMMEDIATES),
        ("subgroups", subgroup, wgpu::Features::SUBGROUP),
    ] {
        let has = device.features().contains(feature);
        match backend.kernel(&KernelDesc::new(name, text)) {
            Ok(_) if has => {}
            Err(BackendError::Kernel { source, .. }) if !has => {
                check(name, &source, Unsupported, 0, "feature")?;
            }
            other => return Err(format!("{name}, which the device has: {has}: {other:?}").into()),
        }
    }
    Ok(still_works(backend)?)
}
