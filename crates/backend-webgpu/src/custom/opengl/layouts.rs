//! Where OpenGL lays out a buffer otherwise than WGSL does: naga's GLSL states no offsets, so a uniform block is
//! laid out by std140, a storage buffer by std430, and immediates without a structure's attributes.

use backend_api::{Diagnostic, DiagnosticKind};
use naga::{AddressSpace, ArraySize, GlobalVariable, Handle, Module, Type, TypeInner};

use super::super::faults::{located, place};
use super::super::types;

/// Refuses variables that lie otherwise on OpenGL.
pub(super) fn check(
    module: &Module,
    used: impl Iterator<Item = Handle<GlobalVariable>>,
    text: &str,
) -> Result<(), Diagnostic> {
    for handle in used {
        let variable = &module.global_variables[handle];
        let is_uniform = match variable.space {
            AddressSpace::Uniform => true,
            AddressSpace::Storage { .. } | AddressSpace::Immediate => false,
            _ => continue,
        };
        if let Err(difference) = (Rules { module, is_uniform }).measure(variable.ty) {
            let name = variable.name.as_deref().unwrap_or_default();
            let said = Diagnostic::new(format!("`{name}` has another layout on OpenGL: {difference}"));
            let said = said.of_kind(DiagnosticKind::Unsupported).with_note(
                "instead of @align and @size, write fields in the gaps; instead of matrices of two rows in parameters, \
                 vectors",
            );
            return Err(located(said, place(text, module.global_variables.get_span(handle))));
        }
    }
    Ok(())
}

/// std140, or else std430.
struct Rules<'a> {
    module: &'a Module,
    is_uniform: bool,
}

#[derive(Clone, Copy)]
struct Layout {
    align: u32,
    size: u32,
}

impl Rules<'_> {
    /// Structures and arrays of std140 are aligned to 16 bytes.
    fn aggregate(&self, align: u32) -> u32 {
        if self.is_uniform { align.next_multiple_of(16) } else { align }
    }

    /// What OpenGL makes of a type.
    ///
    /// # Errors
    /// Where WGSL makes something else of it.
    fn measure(&self, ty: Handle<Type>) -> Result<Layout, String> {
        let vector = |components: u32, width: u32| Layout {
            align: width * if components == 3 { 4 } else { components },
            size: width * components,
        };
        Ok(match self.module.types[ty].inner {
            TypeInner::Scalar(scalar) | TypeInner::Atomic(scalar) => vector(1, scalar.width.into()),
            TypeInner::Vector { size, scalar } => vector(size as u32, scalar.width.into()),
            TypeInner::Matrix { columns, rows, scalar } => {
                let column = vector(rows as u32, scalar.width.into());
                let align = self.aggregate(column.align);
                if align != column.align {
                    let name = types::name(self.module, ty);
                    return Err(format!(
                        "the columns of a {name} are {align} bytes apart, not {}",
                        column.align
                    ));
                }
                Layout { align, size: align * columns as u32 }
            }
            TypeInner::Array { base, size, stride } => {
                let element = self.measure(base)?;
                let align = self.aggregate(element.align);
                let apart = up(element.size, align);
                if apart != stride {
                    let name = types::name(self.module, ty);
                    return Err(format!("elements of the {name} are {stride} bytes apart, not {apart}"));
                }
                let count = if let ArraySize::Constant(count) = size { count.get() } else { 1 };
                Layout { align, size: stride.saturating_mul(count) }
            }
            TypeInner::Struct { ref members, .. } => {
                let (mut align, mut end) = (1, 0_u32);
                for member in members {
                    let layout = self.measure(member.ty)?;
                    let start = up(end, layout.align);
                    if start != member.offset {
                        let [name, whole] = [member.name.as_deref(), self.module.types[ty].name.as_deref()]
                            .map(Option::unwrap_or_default);
                        let offset = member.offset;
                        return Err(format!("`{name}` of `{whole}` begins at byte {offset}, not {start}"));
                    }
                    align = align.max(layout.align);
                    end = start.saturating_add(layout.size);
                }
                let align = self.aggregate(align);
                Layout { align, size: up(end, align) }
            }
            _ => Layout { align: 1, size: 0 },
        })
    }
}

fn up(size: u32, align: u32) -> u32 {
    size.checked_next_multiple_of(align).unwrap_or(u32::MAX)
}
