//! Values of pipeline-overridable constants.

use backend_api::{Diagnostic, DiagnosticKind, SourcePlace};
use naga::back::PipelineConstants;
use naga::back::pipeline_constants::{PipelineConstantError, process_overrides};
use naga::valid::{ModuleInfo, ValidationError};
use naga::{ArraySize, Module, Override, Scalar, ShaderStage, Span, TypeInner};

use super::KernelDesc;
use super::faults::{causes, function, located, place, validation_error};

/// The module with the entry point alone, its constants with values.
///
/// # Errors
/// [`Constant`](DiagnosticKind::Constant), at the constant, or at what its value isn't possible for.
pub(super) fn resolve(
    desc: &KernelDesc,
    module: &Module,
    info: &ModuleInfo,
    name: &str,
) -> Result<(Module, ModuleInfo), Diagnostic> {
    let text = &desc.wgsl;
    let fault = |reason: String, place: Option<SourcePlace>| {
        located(Diagnostic::new(reason).of_kind(DiagnosticKind::Constant), place)
    };
    for (name, &value) in &desc.constants {
        let Some((constant, span)) = declaration(module, name) else {
            return Err(fault(format!("there is no constant `{name}`{}", known(module)), None));
        };
        if let Some(why) = unfit(module, constant, value) {
            return Err(fault(format!("`{name}` can't be {value}: {why}"), place(text, span)));
        }
    }
    let constants: PipelineConstants =
        desc.constants.iter().map(|(key, &value)| (key.clone(), value)).collect();
    let error = match process_overrides(module, info, Some((ShaderStage::Compute, name)), &constants) {
        Ok((module, info)) => return Ok((module.into_owned(), info.into_owned())),
        Err(error) => error,
    };
    // Handles of the error are those of a module that isn't given.
    let at = match &error {
        PipelineConstantError::MissingValue(name) => declaration(module, name).map(|(_, span)| span),
        PipelineConstantError::ValidationError(error) => match error.as_inner() {
            ValidationError::ArraySizeError { .. } | ValidationError::Type { .. } => {
                sized_by_constants(module)
            }
            _ => None,
        },
        PipelineConstantError::NegativeWorkgroupSize => None,
        _ => module.overrides.iter().next().map(|(handle, _)| module.overrides.get_span(handle)),
    };
    let at = at.and_then(|span| place(text, span)).or_else(|| function(text, name));
    Err(match error {
        PipelineConstantError::ValidationError(error) => {
            let said = validation_error(text, None, &error).of_kind(DiagnosticKind::Constant);
            let at = said.place.as_deref().cloned().or(at);
            located(said, at)
        }
        error => fault(causes(&error).join(": "), at),
    })
}

/// A constant by its number, or if it has none by its name.
fn declaration<'a>(module: &'a Module, name: &str) -> Option<(&'a Override, Span)> {
    let found = module.overrides.iter().find(|(_, constant)| match constant.id {
        Some(id) => name.parse() == Ok(id),
        None => constant.name.as_deref() == Some(name),
    });
    found.map(|(handle, constant)| (constant, module.overrides.get_span(handle)))
}

/// The constants that there are, behind what isn't one.
fn known(module: &Module) -> String {
    let constants = module.overrides.iter().filter_map(|(_, constant)| match (constant.id, &constant.name) {
        (Some(id), Some(name)) => Some(format!("`{id}` ({name})")),
        (Some(id), None) => Some(format!("`{id}`")),
        (None, name) => name.as_ref().map(|name| format!("`{name}`")),
    });
    let constants: Vec<String> = constants.collect();
    if constants.is_empty() { String::new() } else { format!(", but {}", constants.join(", ")) }
}

/// Why a constant's type can't have a value.
fn unfit(module: &Module, constant: &Override, value: f64) -> Option<String> {
    let TypeInner::Scalar(scalar) = module.types[constant.ty].inner else { return None };
    let (name, range) = match scalar {
        Scalar::I32 => ("i32", f64::from(i32::MIN)..=f64::from(i32::MAX)),
        Scalar::U32 => ("u32", 0.0..=f64::from(u32::MAX)),
        Scalar::F32 => ("f32", f64::from(f32::MIN)..=f64::from(f32::MAX)),
        Scalar::F16 => ("f16", -65504.0..=65504.0),
        Scalar::BOOL if value.is_nan() => return Some("it is a bool".to_owned()),
        _ => return None,
    };
    let is_whole = !matches!(scalar, Scalar::I32 | Scalar::U32) || value.fract() == 0.0;
    (!is_whole || !range.contains(&value)).then(|| format!("it is no {name}"))
}

/// The first variable with an array whose length constants say.
fn sized_by_constants(module: &Module) -> Option<Span> {
    let is_sized =
        |ty| matches!(module.types[ty].inner, TypeInner::Array { size: ArraySize::Pending(_), .. });
    let found = module.global_variables.iter().find(|(_, variable)| is_sized(variable.ty));
    found.map(|(handle, _)| module.global_variables.get_span(handle))
}
