//! Workgroup memory, invocations and storage buffers against the limits.

use naga::proc::Layouter;
use naga::valid::{FunctionInfo, GlobalUse};
use naga::{AddressSpace, EntryPoint, GlobalVariable, Module, Span};

use super::{Limits, Rule, Violation};

pub(super) fn check(
    module: &Module,
    info: &FunctionInfo,
    entry: &EntryPoint,
    limits: Limits,
) -> Vec<Violation> {
    let used = || {
        module
            .global_variables
            .iter()
            .filter(|(handle, _)| info[*handle] != GlobalUse::empty())
            .map(|(_, variable)| variable)
    };
    let bytes = workgroup_bytes(module, used());
    let invocations: u64 = entry.workgroup_size.iter().map(|&n| u64::from(n)).product();
    let buffers = used().filter(|variable| matches!(variable.space, AddressSpace::Storage { .. })).count();
    [
        (Rule::WorkgroupMemory, bytes, u64::from(limits.workgroup.bytes), "bytes"),
        (Rule::Invocations, invocations, u64::from(limits.workgroup.invocations), "invocations"),
        (Rule::StorageBuffers, buffers as u64, u64::from(limits.storage_buffers), "buffers"),
    ]
    .into_iter()
    .filter(|&(_, used, max, _)| used > max)
    .map(|(rule, used, max, unit)| Violation {
        rule,
        entry_point: entry.name.clone(),
        detail: format!("{used} {unit}, the limit is {max}"),
        span: Span::UNDEFINED,
    })
    .collect()
}

/// WebGPU counts each variable rounded up to 16 bytes.
fn workgroup_bytes<'a>(module: &Module, variables: impl Iterator<Item = &'a GlobalVariable>) -> u64 {
    let mut layouter = Layouter::default();
    layouter.update(module.to_ctx()).expect("the types of a validated module have a layout");
    variables
        .filter(|variable| variable.space == AddressSpace::WorkGroup)
        .map(|variable| u64::from(layouter[variable.ty].size).next_multiple_of(16))
        .sum()
}
