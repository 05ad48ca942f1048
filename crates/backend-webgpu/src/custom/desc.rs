//! What the caller gives: a text, and the limits to check it against.

use std::collections::BTreeMap;

/// A kernel of the caller's own.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KernelDesc {
    /// A name for errors and for the GPU's tools.
    pub name: String,
    /// The WGSL text.
    pub wgsl: String,
    /// The function with `@compute` that is launched; needed where the text has several.
    pub entry_point: Option<String>,
    /// Values of pipeline-overridable constants (`override`), by name, or by the number of `@id(…)` in
    /// decimal where they have one.
    pub constants: BTreeMap<String, f64>,
    /// Whether barriers that can't be proven to be in uniform control flow are warnings of the report rather
    /// than errors, as subgroup operations are in any case.
    pub allow_non_uniform: bool,
}

impl KernelDesc {
    /// A kernel of one entry point, without constants.
    #[must_use]
    pub fn new(name: impl Into<String>, wgsl: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            wgsl: wgsl.into(),
            entry_point: None,
            constants: BTreeMap::new(),
            allow_non_uniform: false,
        }
    }

    /// Chooses the entry point.
    #[must_use]
    pub fn with_entry_point(mut self, name: impl Into<String>) -> Self {
        self.entry_point = Some(name.into());
        self
    }

    /// Gives a pipeline-overridable constant its value. It has to be representable in the constant's type;
    /// `bool` is 0 or anything else.
    #[must_use]
    pub fn with_constant(mut self, name: impl Into<String>, value: f64) -> Self {
        self.constants.insert(name.into(), value);
        self
    }

    /// Takes the caller's word for it that every invocation of a workgroup, or none, reaches each barrier.
    /// The analysis is the one of the WGSL specification, which sees less than a reader does. Where the word
    /// is wrong, results are undefined and a workgroup may wait for itself until the driver ends it.
    #[must_use]
    pub fn allowing_non_uniform(mut self) -> Self {
        self.allow_non_uniform = true;
        self
    }
}

/// The limits and features that a kernel is checked against.
#[derive(Clone, Debug)]
pub struct KernelLimits {
    pub(super) limits: wgpu::Limits,
    pub(super) features: wgpu::Features,
}

impl KernelLimits {
    /// The limits and features of a device.
    #[must_use]
    pub const fn new(limits: wgpu::Limits, features: wgpu::Features) -> Self {
        Self { limits, features }
    }
}

/// WebGPU's default limits, and no optional feature.
impl Default for KernelLimits {
    fn default() -> Self {
        Self::new(wgpu::Limits::default(), wgpu::Features::empty())
    }
}
