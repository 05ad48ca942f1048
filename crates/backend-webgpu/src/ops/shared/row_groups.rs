//! How the invocations of a workgroup share the slices of a tensor along an axis; see
//! shaders/lib/workgroup.wgsl.

use backend_api::BackendResult;

use crate::kernels::params;
use crate::ops::op_context::{OpContext, WORKGROUP, dim, linear_grid};

/// Workgroups that keep a large device busy.
pub(in crate::ops) const BUSY: usize = 1024;
/// Neighbouring numbers that neighbouring invocations should read: 128 bytes of f32, a line of most caches.
const COALESCED: usize = 32;
/// Loads of a member: enough to pay for the tree that joins a row group's results.
pub(in crate::ops) const SHARE: usize = 16;
/// Members of a row group that read one short slice side by side: 32 bytes of f32, the least that memory is
/// read by.
const SECTOR: usize = 8;
/// The fewest loads of an invocation in a small row group.
pub(in crate::ops) const LEAST: usize = 2;
/// Loads that a member of a row group asks for at a time.
pub(in crate::ops) const AHEAD: usize = 4;

/// What a device works on side by side.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct DeviceSize {
    pub(in crate::ops) compute_units: usize,
    /// Invocations of a subgroup, where kernels may exchange values within them.
    pub(in crate::ops) subgroup: Option<u32>,
}

impl DeviceSize {
    /// Direct3D's subgroups aren't used: lib/row_shuffles has their indices in a struct, for which naga 30 writes HLSL
    /// without the semantics that its compiler asks for.
    pub(in crate::ops) fn of(ctx: &OpContext) -> Self {
        let gpu = ctx.gpu();
        let subgroup = gpu.subgroup.filter(|_| gpu.info.api != "Dx12");
        Self { compute_units: ctx.profile().compute_units, subgroup }
    }
}

params! {
    /// Slices that a kernel's row groups take.
    pub(in crate::ops) struct SliceParams {
        slices: u32,
        // Elements, or vectors, of a slice, and between neighbours in it.
        length: u32,
        inner: u32,
        row_group: u32,
        stride: u32,
    }
}

impl SliceParams {
    pub(in crate::ops) fn new(
        op: &'static str,
        row_groups: RowGroups,
        [slices, length, inner]: [usize; 3],
    ) -> BackendResult<Self> {
        Ok(Self {
            slices: dim(op, "slices", slices)?,
            length: dim(op, "axis", length)?,
            inner: dim(op, "inner", inner)?,
            row_group: row_groups.size,
            stride: row_groups.stride,
        })
    }
}

/// A workgroup's row groups, one for each slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct RowGroups {
    /// Invocations of a row group, a power of two.
    pub(in crate::ops) size: u32,
    /// Distance between the members of a row group.
    pub(in crate::ops) stride: u32,
}

impl RowGroups {
    /// Row groups for slices of `length` loads that lie `inner` apart. A member of a larger row group has
    /// about 16 loads, one of a small row group may have down to `least`.
    pub(in crate::ops) fn new(length: usize, inner: usize, least: usize) -> Self {
        Self::with_share(length, inner, least, SHARE)
    }

    /// [`new`](Self::new) with about `share` loads for each invocation.
    pub(in crate::ops) fn with_share(length: usize, inner: usize, least: usize, share: usize) -> Self {
        // Slices side by side are iterated over side by side, so that each step reads a piece of contiguous
        // memory.
        let abreast = inner.min(COALESCED).next_power_of_two();
        // Slices after each other are contiguous along themselves, which takes a few members.
        let side_by_side = if inner == 1 { length.div_ceil(least).min(SECTOR) } else { 1 };
        let size = length.div_ceil(share).max(side_by_side).clamp(1, WORKGROUP / abreast).next_power_of_two();
        let stride = if inner == 1 { 1 } else { WORKGROUP / size };
        Self { size: size as u32, stride: stride as u32 }
    }

    /// Row groups with more members along contiguous slices, as long as each has more loads than it makes at a time and
    /// the workgroups for all slices are no more than the compute units: few slices then take all of the device.
    /// Row groups that are parts of subgroups stay so while a member has `shuffled` loads at most.
    pub(in crate::ops) fn spread(
        self,
        length: usize,
        slices: usize,
        device: DeviceSize,
        shuffled: usize,
    ) -> Self {
        let wider = Self { size: 2 * self.size, ..self };
        let leaves_subgroup = self.is_within(device.subgroup) && !wider.is_within(device.subgroup);
        let is_worth = self.stride == 1
            && wider.size as usize <= WORKGROUP
            && self.share(length) > if leaves_subgroup { shuffled.max(AHEAD) } else { AHEAD }
            && wider.groups(slices) <= device.compute_units;
        if is_worth { wider.spread(length, slices, device, shuffled) } else { self }
    }

    /// Whether every row group is a part of a subgroup.
    pub(in crate::ops) fn is_within(self, subgroup: Option<u32>) -> bool {
        self.stride == 1 && subgroup.is_some_and(|subgroup| self.size <= subgroup)
    }

    /// The most elements of a slice that a member has.
    pub(in crate::ops) fn share(self, length: usize) -> usize {
        length.div_ceil(self.size as usize)
    }

    /// Row groups of a workgroup.
    pub(in crate::ops) fn abreast(self) -> usize {
        WORKGROUP / self.size as usize
    }

    /// Workgroups for `slices`.
    pub(in crate::ops) fn groups(self, slices: usize) -> usize {
        slices.div_ceil(self.abreast())
    }

    /// The grid for `slices`.
    ///
    /// # Errors
    /// [`Limit`](backend_api::BackendError::Limit) as of [`linear_grid`].
    pub(in crate::ops) fn grid(self, op: &'static str, slices: usize) -> BackendResult<[u32; 3]> {
        linear_grid(op, self.groups(slices))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::h200;

    #[test]
    fn row_groups_fit_a_workgroup_and_its_memory_accesses() {
        let shape = |length, inner, least| {
            let RowGroups { size, stride } = RowGroups::new(length, inner, least);
            (size, stride)
        };
        assert_eq!(shape(1 << 24, 1, 8), (256, 1));
        assert_eq!(shape(768, 1, 4), (64, 1));
        assert_eq!(shape(64, 1, 4), (8, 1));
        assert_eq!(shape(16, 1, 8), (2, 1));
        assert_eq!(shape(3, 1, 4), (1, 1));
        assert_eq!(shape(0, 1, 4), (1, 1));
        assert_eq!(shape(1 << 20, 3, 8), (64, 4));
        assert_eq!(shape(1 << 20, 4096, 8), (8, 32));
        assert_eq!(shape(5, 4096, 8), (1, 256));
        assert_eq!(RowGroups::new(768, 1, 4).groups(5), 2);
    }

    #[test]
    fn few_slices_are_spread_over_the_compute_units() {
        let size = |length, inner, slices, compute_units, subgroup| {
            let device = DeviceSize { compute_units, subgroup };
            RowGroups::new(length, inner, 2).spread(length, slices, device, 10).size
        };
        let rows = |slices| size(161, 1, slices, h200::COMPUTE_UNITS, None);
        assert_eq!([1, 8, 48, 1000, 100_000].map(rows), [64, 64, 64, 32, 16]);
        assert_eq!(
            [161, 314, 369].map(|length| size(length, 1, 8, h200::COMPUTE_UNITS, Some(32))),
            [32, 32, 128]
        );
        assert_eq!([size(161, 1, 8, 1, None), size(4, 1, 8, h200::COMPUTE_UNITS, None)], [32, 2]);
        assert_eq!(size(5000, 1, 1, h200::COMPUTE_UNITS, Some(32)), 256);
        assert_eq!(size(161, 64, 1, h200::COMPUTE_UNITS, None), 8, "slices side by side");
    }
}
