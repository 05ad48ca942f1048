//! Values of pipeline-overridable constants, checked before naga takes them, whose errors name neither the constant
//! nor its type.

use backend_api::{Diagnostic, DiagnosticKind, SourcePlace};
use half::f16;
use naga::{Module, Override, Scalar, ScalarKind, Span, TypeInner};

use super::check::located;
use super::{KernelDesc, types};

/// Checks that each value belongs to a constant whose type can hold it.
///
/// # Errors
/// [`Constant`](DiagnosticKind::Constant), with the constants that there are.
pub(super) fn check(desc: &KernelDesc, module: &Module) -> Result<(), Diagnostic> {
    let fault = |reason: String| Diagnostic::new(reason).of_kind(DiagnosticKind::Constant);
    for (name, &value) in &desc.constants {
        let Some((constant, span)) = find(module, name) else {
            let there = module.overrides.iter();
            let there = there.map(|(_, other)| format!("{}: {}", key(other), types::name(module, other.ty)));
            let there: Vec<String> = there.collect();
            let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
            return Err(fault(format!("there is no constant `{name}`, but {there}")));
        };
        if let TypeInner::Scalar(scalar) = module.types[constant.ty].inner
            && !fits(value, scalar)
        {
            let said = fault(format!(
                "`{name}` is {}, into which {value} doesn't fit",
                types::name(module, constant.ty)
            ));
            return Err(located(said, place(desc, span)));
        }
    }
    Ok(())
}

/// The declaration of a constant.
pub(super) fn declaration(desc: &KernelDesc, module: &Module, name: &str) -> Option<SourcePlace> {
    place(desc, find(module, name)?.1)
}

fn find<'a>(module: &'a Module, name: &str) -> Option<(&'a Override, Span)> {
    let mut all = module.overrides.iter();
    all.find(|(_, constant)| key(constant) == name)
        .map(|(handle, constant)| (constant, module.overrides.get_span(handle)))
}

/// What a constant is set by: its number where it has one, else its name.
fn key(constant: &Override) -> String {
    match (constant.id, &constant.name) {
        (Some(id), _) => id.to_string(),
        (None, name) => name.clone().unwrap_or_default(),
    }
}

fn place(desc: &KernelDesc, span: Span) -> Option<SourcePlace> {
    span.to_range().map(|range| SourcePlace::of(&desc.wgsl, range))
}

/// Whether a type holds a number, rounded towards zero for integers.
fn fits(value: f64, scalar: Scalar) -> bool {
    let integer = value.trunc();
    match (scalar.kind, scalar.width) {
        (ScalarKind::Bool, _) => true,
        (ScalarKind::Sint, 4) => (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&integer),
        (ScalarKind::Uint, 4) => (0.0..=f64::from(u32::MAX)).contains(&integer),
        (ScalarKind::Float, 2) => f16::from_f64(value).is_finite(),
        (ScalarKind::Float, 4) => (value as f32).is_finite(),
        _ => value.is_finite(),
    }
}
