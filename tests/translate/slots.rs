//! Which slot of an interface each binding of a kernel gets, counted as wgpu's pipeline layouts do.

use naga::back::{glsl, hlsl, msl};
use naga::{AddressSpace, Module, ResourceBinding, StorageAccess};

/// The buffers of a kernel, in the order of their groups and bindings.
pub(crate) struct Slots {
    buffers: Vec<(ResourceBinding, Use)>,
    /// Whether the parameters are immediates.
    pub(crate) immediates: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Uniform,
    Read,
    Write,
}

impl Slots {
    pub(crate) fn of(module: &Module) -> Self {
        let mut buffers: Vec<_> = module
            .global_variables
            .iter()
            .filter_map(|(_, variable)| {
                let used = match variable.space {
                    AddressSpace::Uniform => Use::Uniform,
                    AddressSpace::Storage { access } if access.contains(StorageAccess::STORE) => Use::Write,
                    AddressSpace::Storage { .. } => Use::Read,
                    _ => return None,
                };
                Some((variable.binding?, used))
            })
            .collect();
        buffers.sort_unstable_by_key(|(binding, _)| (binding.group, binding.binding));
        let mut spaces = module.global_variables.iter().map(|(_, variable)| variable.space);
        Self { buffers, immediates: spaces.any(|space| space == AddressSpace::Immediate) }
    }

    /// One count of all buffers, immediates first and the sizes of runtime-sized arrays last.
    pub(crate) fn msl(&self) -> msl::EntryPointResources {
        let first = u8::from(self.immediates);
        let target = |slot, used| msl::BindTarget {
            buffer: Some(slot),
            mutable: used == Use::Write,
            ..Default::default()
        };
        let bound = (first..).zip(&self.buffers);
        msl::EntryPointResources {
            resources: bound.map(|(slot, &(binding, used))| (binding, target(slot, used))).collect(),
            immediates_buffer: self.immediates.then_some(0),
            sizes_buffer: Some(first + self.buffers.len() as u8),
        }
    }

    /// A count for each kind of view: of constants, of what is read, of what is written.
    pub(crate) fn hlsl(&self) -> hlsl::BindingMap {
        let mut next = [0; 3];
        let mut target = |used| {
            let register = &mut next[used as usize];
            let target = hlsl::BindTarget {
                // Immediates have the first space of constants for themselves.
                space: u8::from(self.immediates && used == Use::Uniform),
                register: *register,
                ..Default::default()
            };
            *register += 1;
            target
        };
        self.buffers.iter().map(|&(binding, used)| (binding, target(used))).collect()
    }

    /// Where the number of workgroups is told: after the constants.
    pub(crate) fn hlsl_special_constants(&self) -> hlsl::BindTarget {
        let constants = self.buffers.iter().filter(|(_, used)| *used == Use::Uniform).count();
        hlsl::BindTarget {
            space: u8::from(self.immediates),
            register: constants as u32,
            ..Default::default()
        }
    }

    /// A count for uniform buffers and one for storage buffers.
    pub(crate) fn glsl(&self) -> glsl::BindingMap {
        let mut next = [0; 2];
        let mut slot = |used| {
            let count = &mut next[usize::from(used != Use::Uniform)];
            *count += 1;
            *count - 1
        };
        self.buffers.iter().map(|&(binding, used)| (binding, slot(used))).collect()
    }
}
