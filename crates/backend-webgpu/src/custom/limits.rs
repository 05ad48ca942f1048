//! What naga doesn't check: sizes and counts against the device's limits, kinds of bindings, and barriers.

use backend_api::{Diagnostic, DiagnosticKind, SourcePlace};
use naga::proc::Layouter;
use naga::{AddressSpace, Arena, GlobalVariable, Handle, LocalVariable, TypeInner};

use super::check::{Source, located};
use super::report::{self, BindingInfo};
use super::{KernelLimits, MAX_PARAM_BYTES, MAX_STORAGE_BINDINGS};
use crate::uniformity::{NonUniform, check as check_uniformity};

/// Bytes of private variables, and of the variables of one function, at most: what the WGSL specification
/// asks every compiler for. Some drivers have less than a large array and crash.
const MAX_INVOCATION_BYTES: u64 = 8192;

/// The bindings of a kernel and the variable of its parameters.
pub(super) type Resources = (Vec<(Handle<GlobalVariable>, BindingInfo)>, Option<Handle<GlobalVariable>>);

/// Sorts the variables that the entry point uses into bindings and parameters.
pub(super) fn resources(
    source: &Source<'_>,
    layouts: &Layouter,
    allowed: &KernelLimits,
) -> Result<Resources, Diagnostic> {
    let limits = &allowed.limits;
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
pub(super) fn workgroup(
    source: &Source<'_>,
    layouts: &Layouter,
    allowed: &KernelLimits,
) -> Result<u64, Diagnostic> {
    let limits = &allowed.limits;
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
    let private = source.used().filter(|(_, variable)| variable.space == AddressSpace::Private);
    let private = private.map(|(handle, variable)| (layouts[variable.ty].size, source.variable(handle)));
    bounded("private variables", private)?;
    let functions = source.module.functions.iter().map(|(_, function)| function);
    for function in functions.chain([&source.entry().function]) {
        bounded("a function's variables", locals(source, layouts, &function.local_variables))?;
    }
    Ok(())
}

fn locals(
    source: &Source<'_>,
    layouts: &Layouter,
    variables: &Arena<LocalVariable>,
) -> impl Iterator<Item = (u32, Option<SourcePlace>)> {
    variables
        .iter()
        .map(|(handle, variable)| (layouts[variable.ty].size, source.place(variables.get_span(handle))))
}

/// Checks the sum of the sizes; the place is that of the largest.
fn bounded(
    what: &str,
    variables: impl Iterator<Item = (u32, Option<SourcePlace>)>,
) -> Result<(), Diagnostic> {
    let variables: Vec<_> = variables.collect();
    let bytes: u64 = variables.iter().map(|&(bytes, _)| u64::from(bytes)).sum();
    let largest = variables.into_iter().max_by_key(|&(bytes, _)| bytes).and_then(|(_, place)| place);
    limit(format!("bytes of {what}"), bytes, MAX_INVOCATION_BYTES, largest)
}

/// Checks that every invocation reaches each barrier; what isn't certain of subgroup operations is a warning.
pub(super) fn uniformity(
    source: &Source<'_>,
    allow: bool,
    warnings: &mut Vec<Diagnostic>,
) -> Result<(), Diagnostic> {
    for finding in check_uniformity(source.module, source.entry()) {
        let said = Diagnostic::new(format!("{} may not be reached by every invocation", finding.what))
            .of_kind(DiagnosticKind::Uniformity)
            .with_note(
                "on the way to it, branch and loop only on workgroup_id, num_workgroups, parameters, read-only \
                 buffers and constants; guard the loads and stores instead, or pass a value through \
                 workgroupUniformLoad",
            );
        let said = located(said, source.place(finding.span));
        if finding.kind == NonUniform::Barrier && !allow {
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
