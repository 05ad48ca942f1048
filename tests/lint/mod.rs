//! Rules that a shader must keep to run everywhere, beyond what naga validates.
//!
//! naga accepts a barrier that only some invocations reach, which browsers refuse and hardware may hang on,
//! and wgpu compares neither the workgroup memory nor every workgroup size with the device's limits. [`lint`]
//! looks at the validated IR instead, so it sees exactly what the backends of naga see.

mod comments;
mod resources;

#[cfg(test)]
mod tests;

use backend_webgpu::variants::{NonUniform, WorkgroupSize, check_uniformity};
use naga::valid::ModuleInfo;
use naga::{Module, Span};

/// What the smallest device that a shader is written for can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Its largest workgroup.
    pub(crate) workgroup: WorkgroupSize,
    /// Storage buffers bound at once.
    pub(crate) storage_buffers: u32,
}

impl Limits {
    /// What every WebGPU device has.
    pub(crate) const PORTABLE: Self = Self { workgroup: WorkgroupSize::PORTABLE, storage_buffers: 8 };
}

/// A rule of the lint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A barrier that some invocations of the workgroup may not reach.
    NonUniformBarrier,
    /// A subgroup operation that some invocations of the workgroup may not reach.
    NonUniformSubgroup,
    /// A load by `workgroupUniformLoad` of more than one place.
    NonUniformPointer,
    /// More workgroup memory than the limit.
    WorkgroupMemory,
    /// More invocations than the limit.
    Invocations,
    /// More storage buffers than the limit.
    StorageBuffers,
}

impl Rule {
    /// The rule in a few words.
    pub(crate) const fn summary(self) -> &'static str {
        match self {
            Self::NonUniformBarrier => "a barrier in non-uniform control flow",
            Self::NonUniformSubgroup => "a subgroup operation in non-uniform control flow",
            Self::NonUniformPointer => "a non-uniform pointer of workgroupUniformLoad",
            Self::WorkgroupMemory => "too much workgroup memory",
            Self::Invocations => "too many invocations in a workgroup",
            Self::StorageBuffers => "too many storage buffers",
        }
    }

    /// Why it is a rule, and how to keep it.
    pub(crate) const fn explanation(self) -> &'static str {
        match self {
            Self::NonUniformBarrier => {
                "Every invocation of a workgroup must reach a barrier, or none. Branch and loop only on workgroup_id, \
                 num_workgroups, uniforms, immediates, read-only storage and constants on the way to one; guard the \
                 loads and stores instead, or pass the value through workgroupUniformLoad."
            }
            Self::NonUniformSubgroup => {
                "Browsers refuse a subgroup operation whose control flow they can't prove to be uniform. Move it out \
                 of the branch and choose its operand with select()."
            }
            Self::NonUniformPointer => {
                "All invocations of a workgroup must load one place, by an index that they share."
            }
            Self::WorkgroupMemory => {
                "wgpu doesn't compare the sum of var<workgroup> with max_compute_workgroup_storage_size; the driver \
                 may fail or spill. Make the tile smaller, or the variant of a higher rung."
            }
            Self::Invocations => {
                "The product of @workgroup_size must not pass max_compute_invocations_per_workgroup."
            }
            Self::StorageBuffers => {
                "The buffers that an entry point uses must not pass max_storage_buffers_per_shader_stage."
            }
        }
    }
}

/// A place where a shader breaks a rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Violation {
    /// The broken rule.
    pub(crate) rule: Rule,
    /// The entry point that breaks it.
    entry_point: String,
    /// What is wrong, with the numbers.
    detail: String,
    /// Where; undefined for a violation of the whole entry point.
    span: Span,
}

impl Violation {
    /// One line with the place in `source`, and one with the rule's explanation.
    pub(crate) fn report(&self, source: &str) -> String {
        let line = match self.span.is_defined() {
            true => format!("line {}: ", self.span.location(source).line_number),
            false => String::new(),
        };
        let Self { rule, entry_point, detail, .. } = self;
        format!("{line}{} in {entry_point}: {detail}\n    {}", rule.summary(), rule.explanation())
    }
}

/// Every violation in the compute entry points of a validated module.
pub(crate) fn lint(module: &Module, info: &ModuleInfo, limits: Limits) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (index, entry) in module.entry_points.iter().enumerate() {
        violations.extend(resources::check(module, info.get_entry_point(index), entry, limits));
        violations.extend(check_uniformity(module, entry).into_iter().map(|finding| Violation {
            rule: match finding.kind {
                NonUniform::Barrier => Rule::NonUniformBarrier,
                NonUniform::Subgroup => Rule::NonUniformSubgroup,
                NonUniform::Pointer => Rule::NonUniformPointer,
            },
            entry_point: entry.name.clone(),
            detail: finding.to_string(),
            span: finding.span,
        }));
    }
    violations
}
