//! What naga doesn't check: sizes and counts against the device's limits, kinds of bindings, and barriers.

use std::collections::HashSet;

use backend_api::{Diagnostic, DiagnosticKind, SourcePlace};
use naga::proc::Layouter;
use naga::valid::FunctionInfo;
use naga::{AddressSpace, Binding, Expression, Function, GlobalVariable, Handle, Module, Span, TypeInner};
use wgpu::Limits;

use super::check::Source;
use super::faults::located;
use super::report::{self, BindingInfo};
use super::{MAX_PARAM_BYTES, MAX_STORAGE_BINDINGS};
use crate::uniformity::{NonUniform, check as check_uniformity};

/// Bytes of private variables, and of the variables of one function, at most: what the WGSL specification
/// asks every compiler for. Some drivers have less than a large array and crash.
const MAX_INVOCATION_BYTES: u64 = 8192;

/// Refuses inputs and results that only graphics have, over which drivers crash.
pub(super) fn interface(source: &Source<'_>) -> Result<(), Diagnostic> {
    let function = &source.entry().function;
    let is_location = |binding: &Option<Binding>| matches!(binding, Some(Binding::Location { .. }));
    let is_input = function.arguments.iter().any(|argument| {
        let members = match &source.module.types[argument.ty].inner {
            TypeInner::Struct { members, .. } => members.as_slice(),
            _ => &[],
        };
        is_location(&argument.binding) || members.iter().any(|member| is_location(&member.binding))
    });
    let what = match (&function.result, is_input) {
        (Some(_), _) => "has a result",
        (None, true) => "has an input with @location",
        (None, false) => return Ok(()),
    };
    let name = &source.entry().name;
    let said = Diagnostic::new(format!("`{name}` {what}, which a compute shader can't have"));
    let said = said.of_kind(DiagnosticKind::Wgsl).with_note("a kernel reads and writes storage buffers");
    Err(located(said, source.function(name)))
}

/// The bindings of a kernel and the variable of its parameters.
pub(super) type Resources = (Vec<(Handle<GlobalVariable>, BindingInfo)>, Option<Handle<GlobalVariable>>);

/// Sorts the variables that the entry point uses into bindings and parameters.
pub(super) fn resources(
    source: &Source<'_>,
    layouts: &Layouter,
    limits: &Limits,
) -> Result<Resources, Diagnostic> {
    let mut bindings = Vec::new();
    let mut params: Option<Handle<GlobalVariable>> = None;
    for (handle, variable) in source.used() {
        let name = variable.name.as_deref().unwrap_or_default();
        let here = || source.variable(handle);
        if let Some(at) = variable.binding {
            limit(format!("group of `{name}`"), at.group, limits.max_bind_groups.saturating_sub(1), here())?;
            let last = limits.max_bindings_per_bind_group.saturating_sub(1);
            limit(format!("binding of `{name}`"), at.binding, last, here())?;
        }
        let unsupported = |what: &str| {
            let said = Diagnostic::new(format!("`{name}` is {what}")).of_kind(DiagnosticKind::Unsupported);
            Err(located(said, here()))
        };
        if matches!(source.module.types[variable.ty].inner, TypeInner::BindingArray { .. }) {
            return unsupported("an array of bindings, which kernels here can't have");
        }
        match variable.space {
            AddressSpace::Storage { access } => {
                let info = report::binding(source.module, layouts, variable, access);
                let what = format!("bytes of `{name}`");
                limit(what, info.min_bytes as u64, limits.max_storage_buffer_binding_size, here())?;
                bindings.push((handle, info));
            }
            AddressSpace::Uniform | AddressSpace::Immediate if params.is_some() => {
                return unsupported("a second block of parameters; kernels have one");
            }
            AddressSpace::Uniform | AddressSpace::Immediate => {
                let what = format!("bytes of the parameters `{name}`");
                let said = limit(what, layouts[variable.ty].size, MAX_PARAM_BYTES as u64, here());
                said.map_err(|said| said.with_note("larger tables fit in a storage buffer"))?;
                params = Some(handle);
            }
            AddressSpace::Handle => {
                return unsupported("no buffer; kernels bind storage buffers and a block of parameters");
            }
            _ => {}
        }
    }
    bindings.sort_by_key(|(_, info)| (info.group, info.binding));
    let most = MAX_STORAGE_BINDINGS.min(limits.max_storage_buffers_per_shader_stage as usize);
    let beyond = bindings.get(most).and_then(|&(handle, _)| source.variable(handle));
    limit("number of storage buffers".to_owned(), bindings.len() as u64, most as u64, beyond)?;
    Ok((bindings, params))
}

/// Checks the size of the workgroup and its memory, whose bytes are returned.
pub(super) fn workgroup(source: &Source<'_>, layouts: &Layouter, limits: &Limits) -> Result<u64, Diagnostic> {
    let entry = source.entry();
    let here = || source.function(&entry.name);
    let most = [
        limits.max_compute_workgroup_size_x,
        limits.max_compute_workgroup_size_y,
        limits.max_compute_workgroup_size_z,
    ];
    for ((axis, size), most) in ["x", "y", "z"].into_iter().zip(entry.workgroup_size).zip(most) {
        limit(format!("workgroup size along {axis}"), size, most, here())?;
        if size == 0 {
            let said = Diagnostic::new(format!("workgroup size along {axis} is 0"));
            return Err(located(said.of_kind(DiagnosticKind::Limit), here()));
        }
    }
    let product =
        entry.workgroup_size.iter().fold(1_u64, |product, &size| product.saturating_mul(size.into()));
    let what = "number of invocations in a workgroup".to_owned();
    limit(what, product, limits.max_compute_invocations_per_workgroup, here())?;

    let mut bytes = 0;
    let mut largest = (0, None);
    for (handle, variable) in source.used().filter(|(_, variable)| variable.space == AddressSpace::WorkGroup)
    {
        // WebGPU counts each variable rounded up to 16 bytes.
        let own = u64::from(layouts[variable.ty].size).next_multiple_of(16);
        bytes += own;
        if own > largest.0 {
            largest = (own, Some(handle));
        }
    }
    let place = largest.1.and_then(|handle| source.variable(handle));
    let what = "bytes of workgroup memory".to_owned();
    limit(what, bytes, limits.max_compute_workgroup_storage_size, place)?;
    Ok(bytes)
}

/// Checks the memory that each invocation has for itself.
pub(super) fn memory_of_invocations(source: &Source<'_>, layouts: &Layouter) -> Result<(), Diagnostic> {
    let module = source.module;
    let private = source.used().filter(|(_, variable)| variable.space == AddressSpace::Private);
    let private = private
        .map(|(handle, variable)| (layouts[variable.ty].size, module.global_variables.get_span(handle)));
    bounded(source, "private variables", private)?;
    let functions = module.functions.iter().map(|(handle, function)| {
        let span = module.functions.get_span(handle);
        (function, &source.info[handle], span)
    });
    let entry = (&source.entry().function, source.info.get_entry_point(0), Span::UNDEFINED);
    for (function, info, span) in functions.chain([entry]) {
        let locals = function.local_variables.iter();
        let locals =
            locals.map(|(handle, local)| (layouts[local.ty].size, function.local_variables.get_span(handle)));
        bounded(source, "a function's variables", locals)?;
        let passed = function.arguments.iter().map(|argument| argument.ty);
        let passed = passed.chain(function.result.as_ref().map(|result| result.ty));
        let passed = passed.filter(|&ty| {
            matches!(module.types[ty].inner, TypeInner::Array { .. } | TypeInner::Struct { .. })
        });
        let values = indexed_values(module, function, info).chain(passed.map(|ty| (layouts[ty].size, span)));
        bounded(source, "a function's arrays that are no variables", values)
            .map_err(|said| said.with_note("tables fit in a storage buffer"))?;
    }
    Ok(())
}

/// The arrays that are indexed as values, for which compilers make variables, each constant once.
fn indexed_values<'a>(
    module: &'a Module,
    function: &'a Function,
    info: &'a FunctionInfo,
) -> impl Iterator<Item = (u32, Span)> + 'a {
    let (mut values, mut constants) = (HashSet::new(), HashSet::new());
    function.expressions.iter().filter_map(move |(handle, expression)| {
        let Expression::Access { base, .. } = *expression else { return None };
        let is_new = match function.expressions[base] {
            Expression::Constant(constant) => constants.insert(constant),
            _ => values.insert(base),
        };
        let inner = info[base].ty.inner_with(&module.types);
        let is_array = matches!(inner, TypeInner::Array { .. });
        (is_new && is_array).then(|| (inner.size(module.to_ctx()), function.expressions.get_span(handle)))
    })
}

/// Checks the sum of the sizes; the place is that of the largest.
fn bounded(
    source: &Source<'_>,
    what: &str,
    sizes: impl Iterator<Item = (u32, Span)>,
) -> Result<(), Diagnostic> {
    let (mut bytes, mut largest) = (0, (0, Span::UNDEFINED));
    for (size, span) in sizes {
        bytes += u64::from(size);
        if size > largest.0 {
            largest = (size, span);
        }
    }
    // A place takes a pass over the text.
    let place = if bytes > MAX_INVOCATION_BYTES { source.place(largest.1) } else { None };
    limit(format!("bytes of {what}"), bytes, MAX_INVOCATION_BYTES, place)
}

/// Checks that every invocation reaches each barrier; what isn't certain of subgroup operations is a warning.
pub(super) fn uniformity(
    source: &Source<'_>,
    allow: bool,
    warnings: &mut Vec<Diagnostic>,
) -> Result<(), Diagnostic> {
    for finding in check_uniformity(source.module, source.entry()) {
        let said = Diagnostic::new(finding.to_string())
            .of_kind(DiagnosticKind::Uniformity)
            .with_note(if finding.kind == NonUniform::Pointer {
                "index with what all invocations of a workgroup share, such as workgroup_id or parameters"
            } else {
                "on the way to it, branch and loop only on workgroup_id, num_workgroups, parameters, read-only \
                 buffers and constants; guard the loads and stores instead, or pass a value through \
                 workgroupUniformLoad"
            });
        let said = located(said, source.place(finding.span));
        if finding.kind != NonUniform::Subgroup && !allow {
            return Err(said);
        }
        warnings.push(said);
    }
    Ok(())
}

/// # Errors
/// [`Limit`](DiagnosticKind::Limit), with both numbers.
fn limit(
    what: String,
    requested: impl Into<u64>,
    max: impl Into<u64>,
    place: Option<SourcePlace>,
) -> Result<(), Diagnostic> {
    let (requested, max) = (requested.into(), max.into());
    if requested <= max {
        return Ok(());
    }
    let said = Diagnostic::new(format!("{what} is {requested}, the limit is {max}"));
    Err(located(said.of_kind(DiagnosticKind::Limit), place))
}
