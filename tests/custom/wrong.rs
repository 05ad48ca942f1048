//! Kernels that are wrong are refused with the line and the reason.

use backend_api::DiagnosticKind::{self, Constant, EntryPoint, Limit, Uniformity, Unsupported};
use backend_api::{BackendError, ComputeBackend, Diagnostic};
use backend_webgpu::{KernelDesc, KernelLimits, WebGpuBackend, validate, validate_kernel};
use libtest_mimic::Failed;

use super::still_works;
use super::texts::{MAIN, OUT, all, body};

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
    super::messages::told()?;
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

/// Values that constants can't have are told with the constant's name, where it is declared.
pub(super) fn constants() -> Result<(), Failed> {
    let text = format!(
        "{OUT}override N: u32;\n@id(7) override factor: i32 = 2;\noverride h: f32 = 1.0;\n\
         var<workgroup> tile: array<u32, N>;\n@compute @workgroup_size(N)\n\
         fn main() {{ out[0] = tile[0] + u32(factor) + u32(h); }}"
    );
    let mut failures = Vec::new();
    for (name, value, line, part) in [
        ("N", -3.0, 2, "`N` can't be -3: it is no u32"),
        ("N", 1.9, 2, "`N` can't be 1.9"),
        ("N", 4_294_967_296.0, 2, "`N`"),
        ("N", f64::NAN, 2, "`N` can't be NaN"),
        ("7", 0.5, 3, "`7` can't be 0.5: it is no i32"),
        ("h", 1e39, 4, "`h`"),
        ("h", f64::INFINITY, 4, "`h`"),
        ("M", 1.0, 0, "there is no constant `M`, but `N`, `7` (factor), `h`"),
        ("factor", 1.0, 0, "`factor`"),
        // A workgroup of none.
        ("N", 0.0, 7, ""),
    ] {
        let desc =
            KernelDesc::new("constants", text.as_str()).with_constant("N", 8.0).with_constant(name, value);
        let label = format!("{name} = {value}");
        match validate_kernel(&desc, &KernelLimits::default()) {
            Ok(_) => failures.push(format!("{label} is taken for right")),
            Err(said) => {
                let found = said.place.as_ref().map_or(0, |place| place.line);
                let is_told = found == line;
                failures.extend((!is_told).then(|| format!("{label}: {said}")));
                failures.extend(check(&label, &said, Constant, 0, part).err());
            }
        }
    }
    let empty =
        format!("{OUT}override N: u32;\nvar<workgroup> tile: array<u32, N>;\n{MAIN} {{ out[0] = tile[i]; }}");
    let empty = KernelDesc::new("empty", empty).with_constant("N", 0.0);
    match validate_kernel(&empty, &KernelLimits::default()) {
        Ok(_) => failures.push("an array of no elements is taken for right".to_owned()),
        Err(said) => failures.extend(check("an array of no elements", &said, Constant, 3, "").err()),
    }
    let fits = KernelDesc::new("constants", text).with_constant("N", 8.0).with_constant("7", -1.0);
    super::expect(
        "the workgroup",
        &validate_kernel(&fits, &KernelLimits::default())?.workgroup_size,
        &[8, 1, 1],
    )?;
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
