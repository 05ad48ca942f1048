//! From a variant to WGSL text.

use std::fmt::Write as _;

use super::params::PADDING;
use super::{Field, KernelSource, Target, Variant};

/// The text of a variant: the kernel's file, its helper files, and the declarations that bind its free names, with its
/// unrolled part if it has one, its bindings and its parameters.
///
/// WGSL doesn't mind the order of declarations, so everything is appended after the file, and the lines of an
/// error message are the file's own. Only `enable` has to come first; it shares the first line.
#[must_use]
pub fn compose(variant: &Variant, target: Target) -> String {
    let source = variant.source;
    let mut text = String::new();
    let requires = variant.requires();
    if requires.f16 {
        text.push_str("enable f16; ");
    }
    if requires.cooperative_matrices {
        text.push_str("enable wgpu_cooperative_matrix; ");
    }
    text.push_str(source.text);
    for lib in variant.libs() {
        text.push('\n');
        text.push_str(lib.text);
    }
    text.push('\n');
    text.push_str(&variant.tail(target));
    declare_bindings(&mut text, source);
    declare_params(&mut text, source.params);
    text.push_str(if target.immediates {
        "var<immediate> params: Params;\n"
    } else {
        "@group(1) @binding(0) var<uniform> params: Params;\n"
    });
    text
}

/// Declares the bindings whose types the kernel knows.
fn declare_bindings(text: &mut String, source: &KernelSource) {
    let reads = source.reads.iter().map(|operand| ("read", operand));
    let writes = source.writes.iter().map(|operand| ("read_write", operand));
    for (binding, (access, operand)) in reads.chain(writes).enumerate() {
        if let Some((name, element)) = operand.split_once(": ") {
            _ = writeln!(
                text,
                "@group(0) @binding({binding}) var<storage, {access}> {name}: array<{element}>;"
            );
        }
    }
}

fn declare_params(text: &mut String, fields: &[Field]) {
    if fields.is_empty() {
        return;
    }
    text.push_str("struct Params {\n");
    for Field { name, wgsl, .. } in fields.iter().filter(|field| field.name != PADDING) {
        _ = writeln!(text, "  {name}: {wgsl},");
    }
    text.push_str("}\n");
}
