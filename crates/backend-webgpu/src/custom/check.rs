//! From a text to a module that is known to be right, with what reflection tells of it.

use backend_api::{Diagnostic, DiagnosticKind, SourcePlace};
use naga::compact::{KeepUnused, compact};
use naga::proc::Layouter;
use naga::valid::{Capabilities, GlobalUse, ModuleInfo, ValidationFlags, Validator};
use naga::{AddressSpace, GlobalVariable, Handle, Module, ShaderStage, Span};

use super::constants::resolve;
use super::faults::{function, located, parse_error, place, validation_error};
use super::report::{self, KernelReport};
use super::{BindingAccess, KernelDesc, KernelLimits, extent, limits, reasons};

/// A kernel that is right.
#[derive(Debug)]
pub(super) struct Checked {
    /// It has one entry point and no constant without a value, and binds nothing that isn't used.
    pub(super) module: Module,
    pub(super) info: ModuleInfo,
    pub(super) report: KernelReport,
    /// The variables of the report's bindings.
    pub(super) bindings: Vec<Handle<GlobalVariable>>,
    /// The variable of the report's parameters.
    pub(super) params: Option<Handle<GlobalVariable>>,
}

/// A module with what its validator found out, and the text that its spans are places of.
pub(super) struct Source<'a> {
    pub(super) text: &'a str,
    pub(super) module: &'a Module,
    pub(super) info: &'a ModuleInfo,
}

impl Source<'_> {
    /// The only entry point.
    pub(super) fn entry(&self) -> &naga::EntryPoint {
        &self.module.entry_points[0]
    }

    /// The variables that the entry point uses.
    pub(super) fn used(&self) -> impl Iterator<Item = (Handle<GlobalVariable>, &GlobalVariable)> {
        let info = self.info.get_entry_point(0);
        self.module.global_variables.iter().filter(move |&(handle, _)| info[handle] != GlobalUse::empty())
    }

    pub(super) fn place(&self, span: Span) -> Option<SourcePlace> {
        place(self.text, span)
    }

    /// The place of a variable's declaration.
    pub(super) fn variable(&self, handle: Handle<GlobalVariable>) -> Option<SourcePlace> {
        self.place(self.module.global_variables.get_span(handle))
    }

    /// The place of a function's name.
    pub(super) fn function(&self, name: &str) -> Option<SourcePlace> {
        function(self.text, name)
    }
}

/// Checks a kernel against limits. To be called with room on the stack.
///
/// # Errors
/// What is wrong first.
pub(super) fn check(desc: &KernelDesc, allowed: &KernelLimits) -> Result<Checked, Diagnostic> {
    let text = desc.wgsl.as_str();
    extent::check(text)?;
    let parsed = naga::front::wgsl::parse_str(text).map_err(|error| parse_error(text, &error))?;
    let capabilities =
        wgpu_naga_bridge::features_to_naga_capabilities(allowed.features, wgpu::DownlevelFlags::all());
    let info = validate(text, &parsed, capabilities)?;
    let name = entry_point(desc, &parsed)?;
    let warnings = unused(text, &parsed, &info);
    let (mut module, mut info) = resolve(desc, &parsed, &info, &name)?;
    // What isn't used must not keep a number that is given to something else.
    if resources(&module).any(|handle| is_unused(&module, &info, handle)) {
        compact(&mut module, KeepUnused::No);
        info = validate(text, &module, capabilities)?;
    }
    let source = Source { text, module: &module, info: &info };
    limits::interface(&source)?;
    let mut layouts = Layouter::default();
    layouts
        .update(module.to_ctx())
        .map_err(|error| Diagnostic::new(error.inner.to_string()).of_kind(DiagnosticKind::Limit))?;
    let (bindings, params) = limits::resources(&source, &layouts, &allowed.limits)?;
    let workgroup_bytes = limits::workgroup(&source, &layouts, &allowed.limits)?;
    limits::memory_of_invocations(&source, &layouts)?;
    let mut report = KernelReport {
        entry_point: name,
        workgroup_size: source.entry().workgroup_size,
        workgroup_bytes,
        bindings: bindings.iter().map(|(_, info)| info.clone()).collect(),
        params: params.map(|handle| report::params(&module, &layouts, &module.global_variables[handle])),
        warnings,
    };
    limits::uniformity(&source, desc.allow_non_uniform, &mut report.warnings)?;
    if report.bindings.iter().all(|binding| binding.access == BindingAccess::Read) {
        let warning = Diagnostic::new(format!("`{}` writes no buffer", report.entry_point));
        let warning = warning.of_kind(DiagnosticKind::Wgsl);
        report.warnings.push(located(warning, source.function(&report.entry_point)));
    }
    let bindings = bindings.into_iter().map(|(handle, _)| handle).collect();
    Ok(Checked { module, info, report, bindings, params })
}

/// The entry point that is meant.
fn entry_point(desc: &KernelDesc, module: &Module) -> Result<String, Diagnostic> {
    let fault = |reason: String| Diagnostic::new(reason).of_kind(DiagnosticKind::EntryPoint);
    let all: Vec<&str> = module
        .entry_points
        .iter()
        .filter(|entry| entry.stage == ShaderStage::Compute)
        .map(|entry| entry.name.as_str())
        .collect();
    let list = || all.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match (&desc.entry_point, all.as_slice()) {
        (_, []) => {
            let what = match module.entry_points.first() {
                Some(entry) => format!("`{}` is no compute shader", entry.name),
                None => "there is no entry point".to_owned(),
            };
            let place = module.entry_points.first().and_then(|entry| function(&desc.wgsl, &entry.name));
            let help = "a kernel is a function with the attributes @compute @workgroup_size(…)";
            Err(located(fault(what).with_note(help), place))
        }
        (Some(chosen), all) if all.contains(&chosen.as_str()) => Ok(chosen.clone()),
        (Some(chosen), _) => {
            let place = function(&desc.wgsl, chosen);
            Err(located(fault(format!("there is no entry point `{chosen}`, but {}", list())), place))
        }
        (None, [one]) => Ok((*one).to_owned()),
        (None, [_, second, ..]) => {
            let reason = format!("there are several entry points, of which one has to be chosen: {}", list());
            Err(located(fault(reason), function(&desc.wgsl, second)))
        }
    }
}

/// A warning for each binding that no entry point uses.
fn unused(text: &str, module: &Module, info: &ModuleInfo) -> Vec<Diagnostic> {
    let variables = resources(module).filter(|&handle| is_unused(module, info, handle));
    variables
        .map(|handle| {
            let name = module.global_variables[handle].name.as_deref().unwrap_or_default();
            let warning = Diagnostic::new(format!("`{name}` isn't used, so a launch doesn't take it"));
            let warning = warning.of_kind(DiagnosticKind::Wgsl);
            located(warning, place(text, module.global_variables.get_span(handle)))
        })
        .collect()
}

/// What a launch may have to give.
fn resources(module: &Module) -> impl Iterator<Item = Handle<GlobalVariable>> {
    let is_resource =
        |variable: &GlobalVariable| variable.binding.is_some() || variable.space == AddressSpace::Immediate;
    module
        .global_variables
        .iter()
        .filter(move |(_, variable)| is_resource(variable))
        .map(|(handle, _)| handle)
}

fn is_unused(module: &Module, info: &ModuleInfo, handle: Handle<GlobalVariable>) -> bool {
    (0..module.entry_points.len()).all(|entry| info.get_entry_point(entry)[handle] == GlobalUse::empty())
}

fn validate(text: &str, module: &Module, capabilities: Capabilities) -> Result<ModuleInfo, Diagnostic> {
    let validator = |capabilities| Validator::new(ValidationFlags::all(), capabilities);
    validator(capabilities).validate(module).map_err(|error| {
        let mut said = validation_error(text, Some(module), &error);
        let reason = reasons::reason(module, error.as_inner());
        if validator(Capabilities::all()).validate(module).is_ok() {
            said.kind = DiagnosticKind::Unsupported;
            if reason.is_none() {
                said.notes.push("it needs a feature that isn't there".to_owned());
            }
        }
        said.reason = reason.unwrap_or(said.reason);
        said
    })
}
