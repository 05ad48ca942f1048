//! WGSL's names of types.

use naga::{ArraySize, Handle, Module, Scalar, ScalarKind, Type, TypeInner};

/// The name of a type as WGSL spells it, such as `vec4<f32>`.
pub(super) fn name(module: &Module, ty: Handle<Type>) -> String {
    match module.types.get_handle(ty) {
        Ok(found) => name_of(module, &found.inner, found.name.as_deref()),
        Err(_) => "?".to_owned(),
    }
}

/// The name of a type that has one of its own if it is a structure; of a pointer, that of what it points to.
pub(super) fn name_of(module: &Module, inner: &TypeInner, own: Option<&str>) -> String {
    match *inner {
        TypeInner::Scalar(scalar) => scalar_name(scalar),
        TypeInner::Atomic(scalar) => format!("atomic<{}>", scalar_name(scalar)),
        TypeInner::Vector { size, scalar } => format!("vec{}<{}>", size as u8, scalar_name(scalar)),
        TypeInner::Matrix { columns, rows, scalar } => {
            format!("mat{}x{}<{}>", columns as u8, rows as u8, scalar_name(scalar))
        }
        TypeInner::Array { base, size, .. } => match size {
            ArraySize::Constant(count) => format!("array<{}, {count}>", name(module, base)),
            _ => format!("array<{}>", name(module, base)),
        },
        TypeInner::Pointer { base, .. } => name(module, base),
        TypeInner::ValuePointer { size, scalar, .. } => match size {
            Some(size) => format!("vec{}<{}>", size as u8, scalar_name(scalar)),
            None => scalar_name(scalar),
        },
        _ => own.unwrap_or("a type without a name").to_owned(),
    }
}

fn scalar_name(scalar: Scalar) -> String {
    let kind = match scalar.kind {
        ScalarKind::Sint => "i",
        ScalarKind::Uint => "u",
        ScalarKind::Float => "f",
        ScalarKind::AbstractInt | ScalarKind::AbstractFloat => return "a number without a type".to_owned(),
        ScalarKind::Bool => return "bool".to_owned(),
    };
    format!("{kind}{}", u32::from(scalar.width) * 8)
}
