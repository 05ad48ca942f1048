//! What reflection tells of a kernel.

use backend_api::{DType, Diagnostic};
use naga::proc::Layouter;
use naga::{AddressSpace, ArraySize, Handle, Module, ScalarKind, StorageAccess, Type, TypeInner};

use super::types;

/// A kernel as its text describes it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KernelReport {
    /// The function that is launched.
    pub entry_point: String,
    /// Invocations of a workgroup along x, y and z.
    pub workgroup_size: [u32; 3],
    /// Bytes of workgroup memory, each variable rounded up to 16.
    pub workgroup_bytes: u64,
    /// The storage buffers that the entry point uses, in the order in which a launch takes their handles: by
    /// group, then by binding.
    pub bindings: Vec<BindingInfo>,
    /// The parameters that a launch takes as bytes, if the kernel has any.
    pub params: Option<ParamsInfo>,
    /// What is right, but probably not meant.
    pub warnings: Vec<Diagnostic>,
}

/// A storage buffer of a kernel.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct BindingInfo {
    /// The variable's name.
    pub name: String,
    /// The number in `@group(…)`.
    pub group: u32,
    /// The number in `@binding(…)`.
    pub binding: u32,
    /// What the kernel may do with it.
    pub access: BindingAccess,
    /// The variable's type in WGSL, such as `array<vec4<f32>>`.
    pub ty: String,
    /// The type of what it has a number of in WGSL, such as `vec4<f32>`: an array's elements, also where it is
    /// the last field of a structure, or else the variable's own type.
    pub element: String,
    /// The number type of the elements, where this contract has it and they are made of nothing else.
    pub dtype: Option<DType>,
    /// Bytes from one element to the next.
    pub element_bytes: usize,
    /// The least bytes that have to be bound. An array without a length has at least one element.
    pub min_bytes: usize,
    /// Whether its length is the buffer's.
    pub runtime_sized: bool,
}

/// How a kernel may access a storage buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BindingAccess {
    /// `var<storage, read>`.
    Read,
    /// `var<storage, read_write>`.
    ReadWrite,
}

impl BindingAccess {
    /// As WGSL spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::ReadWrite => "read_write",
        }
    }
}

/// The parameters of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParamsInfo {
    /// The variable's name.
    pub name: String,
    /// How the kernel declares them.
    pub space: ParamSpace,
    /// The bytes that a launch takes.
    pub bytes: usize,
    /// The fields in order; a variable that is no structure is one field with its own name.
    pub fields: Vec<ParamField>,
}

/// Where a kernel's parameters are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamSpace {
    /// `var<uniform>`, on every device.
    Uniform,
    /// `var<immediate>`, on devices that have immediates.
    Immediate,
}

/// One field of a kernel's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ParamField {
    /// Its name.
    pub name: String,
    /// Its type in WGSL.
    pub ty: String,
    /// Bytes from the start of the parameters.
    pub offset: usize,
    /// Its bytes.
    pub bytes: usize,
}

/// The storage buffer behind a variable with a binding.
pub(super) fn binding(
    module: &Module,
    layouts: &Layouter,
    variable: &naga::GlobalVariable,
    access: StorageAccess,
) -> BindingInfo {
    let at = variable.binding.unwrap_or(naga::ResourceBinding { group: 0, binding: 0 });
    let (element, stride, runtime_sized) = element(module, layouts, variable.ty);
    BindingInfo {
        name: variable.name.clone().unwrap_or_default(),
        group: at.group,
        binding: at.binding,
        access: if access.contains(StorageAccess::STORE) {
            BindingAccess::ReadWrite
        } else {
            BindingAccess::Read
        },
        ty: types::name(module, variable.ty),
        element: types::name(module, element),
        dtype: dtype(module, element),
        element_bytes: stride,
        min_bytes: layouts[variable.ty].size as usize,
        runtime_sized,
    }
}

/// What a variable has a number of, the bytes from one to the next, and whether the number is the buffer's.
fn element(module: &Module, layouts: &Layouter, ty: Handle<Type>) -> (Handle<Type>, usize, bool) {
    match &module.types[ty].inner {
        &TypeInner::Array { base, size, stride } => (base, stride as usize, size == ArraySize::Dynamic),
        TypeInner::Struct { members, .. } => {
            let last = members.last().map(|member| element(module, layouts, member.ty));
            last.filter(|&(_, _, runtime_sized)| runtime_sized).unwrap_or((
                ty,
                layouts[ty].size as usize,
                false,
            ))
        }
        _ => (ty, layouts[ty].size as usize, false),
    }
}

fn dtype(module: &Module, ty: Handle<Type>) -> Option<DType> {
    let scalar = match module.types[ty].inner {
        TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => scalar,
        // Vectors of three have a gap behind them.
        TypeInner::Vector { size, scalar } if size != naga::VectorSize::Tri => scalar,
        TypeInner::Array { base, size: ArraySize::Constant(_), .. } => return dtype(module, base),
        _ => return None,
    };
    match (scalar.kind, scalar.width) {
        (ScalarKind::Float, 4) => Some(DType::F32),
        (ScalarKind::Float, 2) => Some(DType::F16),
        (ScalarKind::Sint, 4) => Some(DType::I32),
        (ScalarKind::Uint, 4) => Some(DType::U32),
        _ => None,
    }
}

/// The parameters behind a variable.
pub(super) fn params(module: &Module, layouts: &Layouter, variable: &naga::GlobalVariable) -> ParamsInfo {
    let name = variable.name.clone().unwrap_or_default();
    let fields = match &module.types[variable.ty].inner {
        TypeInner::Struct { members, .. } => members
            .iter()
            .map(|member| ParamField {
                name: member.name.clone().unwrap_or_default(),
                ty: types::name(module, member.ty),
                offset: member.offset as usize,
                bytes: layouts[member.ty].size as usize,
            })
            .collect(),
        _ => vec![ParamField {
            name: name.clone(),
            ty: types::name(module, variable.ty),
            offset: 0,
            bytes: layouts[variable.ty].size as usize,
        }],
    };
    ParamsInfo {
        name,
        space: if variable.space == AddressSpace::Uniform {
            ParamSpace::Uniform
        } else {
            ParamSpace::Immediate
        },
        bytes: layouts[variable.ty].size as usize,
        fields,
    }
}
