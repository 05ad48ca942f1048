//! Results for people, and as JSON.

use std::fmt::Write as _;

use backend_api::{DType, DeviceInfo};
use backend_webgpu::{Clock, Comparison, DeviceSpecs, KernelReport, ParamSpace, Profile};
use serde_json::{Value, json};

use crate::failure::diagnostic;
use crate::operand::Operand;

pub(crate) fn specs(specs: &DeviceSpecs) -> String {
    let mut text = String::new();
    let mut row = |name: &str, value: &str| _ = writeln!(text, "{name:<22}{value}");
    row("device", &format!("{} ({}, {})", specs.name, specs.selector, specs.kind));
    row("interface", &specs.api);
    row("driver", &specs.driver);
    row("features", &specs.features.join(", "));
    let [smallest, largest] = specs.subgroup_sizes;
    row("subgroup sizes", &format!("{smallest} to {largest}"));
    row("compute units", &format!("{} ({})", specs.compute_units, specs.compute_units_from));
    let unknown = || "the interface doesn't tell".to_owned();
    row("memory", &specs.memory.map_or_else(unknown, |bytes| format!("{} MiB", bytes >> 20)));
    for matrix in &specs.cooperative_matrices {
        let [m, n, k] = matrix.shape;
        row("cooperative matrix", &format!("{m}×{n}×{k}, {} into {}", matrix.inputs, matrix.sums));
    }
    row("timestamps", if specs.timestamps { "yes" } else { "no" });
    row("parameters", &format!("{} bytes at most", specs.max_param_bytes));
    row("storage buffers", &format!("{} of a kernel at most", specs.max_storage_bindings));
    text.push_str("\nlimits\n");
    for (name, value) in &specs.limits {
        _ = writeln!(text, "  {name:<62}{value:>16}");
    }
    text.push_str("\nbuilt-in operations\n");
    for built_in in &specs.built_in {
        _ = writeln!(text, "  {:<58}{}", built_in.operation, built_in.kernel);
    }
    text
}

pub(crate) fn devices(devices: &[DeviceInfo]) -> String {
    let mut text = String::new();
    for DeviceInfo { selector, name, api, driver, kind } in devices {
        _ = writeln!(text, "{selector:<12}{name} ({api}, {kind:?}; {driver})");
    }
    text
}

pub(crate) fn device_json(device: &DeviceInfo) -> Value {
    let DeviceInfo { selector, name, api, driver, kind } = device;
    json!({ "selector": selector, "name": name, "api": api, "driver": driver, "kind": format!("{kind:?}") })
}

pub(crate) fn kernel(report: &KernelReport) -> String {
    let [x, y, z] = report.workgroup_size;
    let mut text = format!("`{}` is right\n", report.entry_point);
    _ = writeln!(text, "workgroup       {x}×{y}×{z}, {} bytes of workgroup memory", report.workgroup_bytes);
    for (index, binding) in report.bindings.iter().enumerate() {
        let (group, number) = (binding.group, binding.binding);
        let (name, access, ty) = (&binding.name, binding.access.name(), &binding.ty);
        let least = binding.min_bytes;
        _ = writeln!(
            text,
            "buffer {index:<9}{name}: {access} {ty} (group {group}, binding {number}, {least} bytes or more)"
        );
    }
    if let Some(params) = &report.params {
        let fields: Vec<String> =
            params.fields.iter().map(|f| format!("{}: {} at {}", f.name, f.ty, f.offset)).collect();
        _ = writeln!(text, "parameters      {} ({} bytes: {})", params.name, params.bytes, fields.join(", "));
    }
    text
}

pub(crate) fn kernel_json(report: &KernelReport) -> Value {
    let bindings = report.bindings.iter().map(|binding| {
        json!({
            "name": binding.name,
            "group": binding.group,
            "binding": binding.binding,
            "access": binding.access.name(),
            "type": binding.ty,
            "element": binding.element,
            "dtype": binding.dtype.map(backend_api::DType::name),
            "element_bytes": binding.element_bytes,
            "min_bytes": binding.min_bytes,
            "runtime_sized": binding.runtime_sized,
        })
    });
    let params = report.params.as_ref().map(|params| {
        let fields = params.fields.iter().map(
            |f| json!({ "name": f.name, "type": f.ty, "offset": f.offset, "bytes": f.bytes }),
        );
        json!({
            "name": params.name,
            "space": match params.space { ParamSpace::Uniform => "uniform", ParamSpace::Immediate => "immediate" },
            "bytes": params.bytes,
            "fields": fields.collect::<Vec<_>>(),
        })
    });
    json!({
        "entry_point": report.entry_point,
        "workgroup_size": report.workgroup_size,
        "workgroup_bytes": report.workgroup_bytes,
        "bindings": bindings.collect::<Vec<_>>(),
        "params": params,
        "warnings": report.warnings.iter().map(diagnostic).collect::<Vec<_>>(),
    })
}

/// The beginning of an output.
pub(crate) fn output(index: usize, name: &str, operand: &Operand, numbers: &[f64]) -> String {
    let shape: Vec<String> = operand.shape.iter().map(ToString::to_string).collect();
    let mut text = format!("buffer {index}, {name}: {} {} =", operand.dtype, shape.join("×"));
    for &number in numbers {
        _ = match operand.dtype {
            DType::I32 | DType::U32 => write!(text, " {number}"),
            // As many digits as f32 has.
            _ => write!(text, " {}", number as f32),
        };
    }
    if numbers.len() < operand.elements() {
        text.push_str(" …");
    }
    text.push('\n');
    text
}

pub(crate) fn profile(info: &DeviceInfo, profile: &Profile) -> String {
    let clock = match profile.clock {
        Clock::Device => "the device's timestamps",
        Clock::Host => "the host's clock, with submission and wait",
    };
    let [median, p10, p90] = [profile.median, profile.p10, profile.p90].map(time);
    let (samples, launches) = (profile.samples, profile.launches_per_sample);
    let mut text = format!("device     {} ({})\n", info.name, info.api);
    _ = writeln!(
        text,
        "time       {median} (10 %: {p10}, 90 %: {p90}; {samples} samples of {launches} launches)"
    );
    _ = writeln!(text, "clock      {clock}");
    if let Some(rate) = profile.gb_per_s {
        _ = writeln!(text, "bandwidth  {} GB/s", three_digits(rate));
    }
    if let Some(rate) = profile.gflop_per_s {
        _ = writeln!(text, "speed      {} GFLOP/s", three_digits(rate));
    }
    text
}

/// A rate with three digits that mean something, however small it is.
fn three_digits(rate: f64) -> String {
    let decimals = 2 - rate.abs().max(1e-9).log10().floor() as i32;
    format!("{rate:.*}", decimals.max(0) as usize)
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.3} ms", s * 1e3),
        s => format!("{:.2} µs", s * 1e6),
    }
}

pub(crate) fn comparisons(comparisons: &[Comparison]) -> String {
    comparisons.iter().map(|comparison| comparison_line(comparison) + "\n").collect()
}

fn comparison_line(comparison: &Comparison) -> String {
    let Comparison { binding, elements, wrong, max_abs_error, max_rel_error, .. } = comparison;
    let verdict = match comparison.is_right() {
        true if *max_abs_error == 0.0 => {
            return format!("buffer {binding}: all {elements} elements are exact");
        }
        true => format!("all {elements} elements within the bound"),
        false => format!("{wrong} of {elements} elements are wrong"),
    };
    let Comparison { worst_index, expected, found, .. } = comparison;
    format!(
        "buffer {binding}: {verdict}; errors up to {max_abs_error:e}, relative {max_rel_error:e}; the worst is \
         element {worst_index}: {found}, not {expected}"
    )
}

/// What is wrong with a kernel that runs: `None` if every buffer is as expected.
pub(crate) fn mismatch(comparisons: &[Comparison]) -> Option<Value> {
    let wrong = comparisons.iter().filter(|comparison| !comparison.is_right());
    let reasons: Vec<String> = wrong.map(comparison_line).collect();
    (!reasons.is_empty()).then(|| json!({ "kind": "mismatch", "reason": reasons.join("\n") }))
}

/// JSON has no NaN and no infinities: they are text.
pub(crate) fn comparisons_json(comparisons: &[Comparison]) -> Value {
    let number = |x: f64| if x.is_finite() { json!(x) } else { json!(x.to_string()) };
    let each = comparisons.iter().map(|comparison| {
        json!({
            "index": comparison.binding,
            "ok": comparison.is_right(),
            "elements": comparison.elements,
            "wrong": comparison.wrong,
            "max_abs_error": number(comparison.max_abs_error),
            "max_rel_error": number(comparison.max_rel_error),
            "worst_index": comparison.worst_index,
            "expected": number(comparison.expected),
            "found": number(comparison.found),
        })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_an_error_has_a_worst_element() {
        let mut comparison = Comparison::default();
        (comparison.elements, comparison.expected, comparison.found) = (8, 1.0, 1.0);
        assert_eq!(comparison_line(&comparison), "buffer 0: all 8 elements are exact");
        (comparison.max_abs_error, comparison.found, comparison.worst_index) = (0.5, 1.5, 3);
        let line = comparison_line(&comparison);
        assert!(line.starts_with("buffer 0: all 8 elements within the bound; errors up to 5e-1"), "{line}");
        assert!(line.ends_with("the worst is element 3: 1.5, not 1"), "{line}");
        comparison.wrong = 1;
        assert!(comparison_line(&comparison).starts_with("buffer 0: 1 of 8 elements are wrong"));
    }
}
