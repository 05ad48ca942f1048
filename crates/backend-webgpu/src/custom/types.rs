//! WGSL's names of types.

use naga::{ArraySize, Handle, Module, Scalar, ScalarKind, Type, TypeInner};

/// The name of a type as WGSL spells it, such as `vec4<f32>`.
pub(super) fn name(module: &Module, ty: Handle<Type>) -> String {
    let Ok(found) = module.types.get_handle(ty) else { return "?".to_owned() };
    match found.inner {
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
        _ => found.name.clone().unwrap_or_else(|| "a type without a name".to_owned()),
    }
}

fn scalar_name(scalar: Scalar) -> String {
    let kind = match scalar.kind {
        ScalarKind::Sint => "i",
        ScalarKind::Uint => "u",
        ScalarKind::Float => "f",
        _ => return "bool".to_owned(),
    };
    format!("{kind}{}", u32::from(scalar.width) * 8)
}
