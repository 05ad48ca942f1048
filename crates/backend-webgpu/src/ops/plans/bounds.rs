//! What every plan must keep to: the device's limits, and its own number of compute units.

use std::collections::HashMap;

use naga::AddressSpace;
use naga::proc::Layouter;
use naga::valid::{Capabilities, GlobalUse, ValidationFlags, Validator};

use super::{Plan, Pretended};
use crate::context::MAX_GROUPS;
use crate::device::LEAST_BINDINGS;
use crate::kernels::{Target, Variant, WorkgroupSize, compose};
use crate::ops::op_context::Launch;

/// What a workgroup takes, as its text says.
#[derive(Clone, Copy, Debug)]
struct Footprint {
    bytes: u32,
    invocations: u32,
}

/// The footprints of variants, by their names.
#[derive(Default)]
pub(super) struct Footprints(HashMap<String, Footprint>);

impl Footprint {
    fn of(variant: &Variant) -> Self {
        let text = compose(variant, Target { immediates: true, unroll: false });
        let module = naga::front::wgsl::parse_str(&text).unwrap_or_else(|error| {
            panic!("{} {variant}: {}", variant.kernel(), error.emit_to_string(&text))
        });
        let info = Validator::new(ValidationFlags::empty(), Capabilities::all()).validate(&module).unwrap();
        let mut layouter = Layouter::default();
        layouter.update(module.to_ctx()).unwrap();
        let is_used = |handle| info.get_entry_point(0)[handle] != GlobalUse::empty();
        let shared = module
            .global_variables
            .iter()
            .filter(|&(handle, variable)| variable.space == AddressSpace::WorkGroup && is_used(handle));
        // WebGPU counts each variable rounded up to 16 bytes.
        let bytes = shared.map(|(_, variable)| layouter[variable.ty].size.next_multiple_of(16)).sum();
        Self { bytes, invocations: module.entry_points[0].workgroup_size.iter().product() }
    }
}

/// Asserts that `fits` takes the workgroups of `variant` for what its text says: devices without room for one don't fit,
/// and those with `spare` bytes more do.
pub(in crate::ops) fn assert_room(variant: &Variant, spare: u32, fits: impl Fn(&wgpu::Limits) -> bool) {
    let footprint @ Footprint { bytes, invocations } = Footprint::of(variant);
    let is_room = |bytes, invocations, width| {
        fits(&wgpu::Limits {
            max_compute_workgroup_storage_size: bytes,
            max_compute_invocations_per_workgroup: invocations,
            max_compute_workgroup_size_x: width,
            ..wgpu::Limits::default()
        })
    };
    let room = bytes + spare;
    let what = || format!("{footprint:?}: {} {variant}", variant.kernel());
    assert!(is_room(room, invocations, invocations), "{}", what());
    assert!(!is_room(bytes.saturating_sub(1), invocations, invocations) || bytes == 0, "bytes: {}", what());
    assert!(!is_room(room, invocations - 1, invocations), "invocations: {}", what());
    assert!(!is_room(room, invocations, invocations - 1), "width: {}", what());
}

/// Every kernel has room on the device, and every grid has workgroups, no more than WebGPU allows.
pub(super) fn check(device: &Pretended, plans: &[Plan], Footprints(footprints): &mut Footprints) {
    let [bytes, invocations] = device.workgroup;
    for Plan { line, launches } in plans {
        for Launch { variant, grid, .. } in launches {
            let of = footprints.entry(format!("{} {variant}", variant.kernel()));
            let footprint = of.or_insert_with(|| Footprint::of(variant));
            assert!(
                footprint.bytes <= bytes && footprint.invocations <= invocations,
                "{footprint:?}: {line}"
            );
            let requires = variant.requires();
            let stated = requires.workgroup;
            // No less is stated than this, nor more than what is taken.
            let least = if requires.cooperative_matrices {
                WorkgroupSize::COOPERATIVE
            } else {
                WorkgroupSize::PORTABLE
            };
            assert!(
                footprint.bytes <= stated.bytes
                    && footprint.invocations <= stated.invocations
                    && stated.bytes <= footprint.bytes.max(least.bytes)
                    && stated.invocations <= footprint.invocations.max(least.invocations),
                "{footprint:?}, which are stated as {stated:?}: {line}"
            );
            let has = (device.tensor_cores || !(requires.cooperative_matrices || requires.element_access))
                && (device.subgroup.is_some() || !requires.subgroups)
                && (device.f16 || !requires.f16)
                && (device.barriers || !requires.device_scope_barriers)
                && requires.storage_buffers as usize <= LEAST_BINDINGS;
            assert!(has, "{requires:?}: {line}");
            assert!(grid.iter().all(|extent| (1..=MAX_GROUPS).contains(extent)), "{grid:?}: {line}");
        }
    }
}

/// Partial sums, and partial results of attention, are worth their launch: counted in the device's own compute
/// units, the one with the most workgroups has less to do than if sums were whole.
pub(super) fn check_splits(device: &Pretended, plans: &[Plan]) {
    for Plan { line, launches } in plans {
        for pair in launches.windows(2) {
            let [main, combine] = pair else { continue };
            let (parts, at_a_time) = match combine.variant.kernel() {
                "gemm/combine" => (combine.param("batch"), 2),
                "conv/combine" => (combine.param("slices"), 2),
                "attention/combine" => (combine.param("options") >> 8 & 0xffff, 4),
                _ => continue,
            };
            let workgroups: u32 = main.grid.iter().product();
            let whole = workgroups.div_ceil(parts);
            // A compute unit runs one workgroup at a time, or a few side by side.
            let is_worth = (1..=at_a_time).any(|side_by_side| {
                let places = side_by_side * device.compute_units as u32;
                workgroups.div_ceil(places) < parts * whole.div_ceil(places)
            });
            // Attention of one piece is put together where a workgroup has more than a few keys.
            assert!(parts == 1 || is_worth, "{workgroups} workgroups for {parts} parts: {line}");
        }
    }
}

impl Launch {
    /// A parameter by its name in WGSL.
    fn param(&self, name: &str) -> u32 {
        let field = self.variant.source.params.iter().find(|field| field.name == name).unwrap();
        u32::from_ne_bytes(self.params[field.offset..][..size_of::<u32>()].try_into().unwrap())
    }
}
