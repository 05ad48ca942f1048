//! What a variant requires of a device.

use backend_api::DType;

use super::Variant;
use super::libs::FRAGMENT_ELEMENTS;

/// Invocations and memory of a workgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkgroupSize {
    /// Invocations.
    pub invocations: u32,
    /// Bytes of workgroup memory, each variable rounded up to 16.
    pub bytes: u32,
}

impl WorkgroupSize {
    /// What every WebGPU device has room for.
    pub const PORTABLE: Self = Self { invocations: 256, bytes: 16_384 };

    /// The most that kernels on cooperative matrices take, whose planners compare each tile with the device.
    pub const COOPERATIVE: Self = Self { invocations: 1024, bytes: 49_152 };

    /// The larger of both numbers.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { invocations: self.invocations.max(other.invocations), bytes: self.bytes.max(other.bytes) }
    }
}

/// The features and the room that a device must have for a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirements {
    /// Elements of f16 in storage and arithmetic.
    pub f16: bool,
    /// Exchange of values within subgroups.
    pub subgroups: bool,
    /// Cooperative matrices.
    pub cooperative_matrices: bool,
    /// Barriers after which all workgroups of a device see what was written.
    pub device_scope_barriers: bool,
    /// Buffers of storage that are bound at once; every device has room for eight.
    pub storage_buffers: u32,
    /// SPIR-V: only there can a text name the elements of a cooperative matrix.
    pub element_access: bool,
    /// Room for a workgroup, never less than [`WorkgroupSize::PORTABLE`].
    pub workgroup: WorkgroupSize,
}

impl Variant {
    /// What a device must have to run the variant.
    #[must_use]
    pub fn requires(&self) -> Requirements {
        let cooperative_matrices = self.source.cooperative;
        let least = if cooperative_matrices { WorkgroupSize::COOPERATIVE } else { WorkgroupSize::PORTABLE };
        Requirements {
            // All fragments have elements of f16.
            f16: cooperative_matrices || self.has_type(DType::F16),
            subgroups: self.source.subgroups,
            cooperative_matrices,
            device_scope_barriers: self.libs().iter().any(|lib| lib.device_scope_barriers),
            storage_buffers: (self.source.reads.len() + self.source.writes.len()) as u32,
            element_access: self.libs().contains(&FRAGMENT_ELEMENTS),
            workgroup: self.workgroup.max(least),
        }
    }
}
