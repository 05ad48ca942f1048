//! Which values and which memory all invocations of a workgroup share.

use naga::{AddressSpace, Binding, BuiltIn, Expression, Handle, LocalVariable, StorageAccess, TypeInner};

use super::flow::Frame;

/// The built-in values that all invocations of a workgroup share.
pub(super) fn is_uniform_binding(binding: &Binding) -> bool {
    matches!(
        binding,
        Binding::BuiltIn(
            BuiltIn::WorkGroupId
                | BuiltIn::NumWorkGroups
                | BuiltIn::WorkGroupSize
                | BuiltIn::NumSubgroups
                | BuiltIn::SubgroupSize
        )
    )
}

/// What is known of an argument of the call that is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Argument {
    /// Whether its value, or the address it points to, varies.
    pub(super) varies: bool,
    /// Whether the memory it points to varies.
    pub(super) pointee_varies: bool,
}

/// The variable at the start of a pointer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Root {
    Local(Handle<LocalVariable>),
    Argument(usize),
    Memory { varies: bool },
}

impl Frame<'_> {
    /// Notes that a value which varies, or doesn't, is stored behind `pointer`.
    pub(super) fn store(&mut self, pointer: Handle<Expression>, varies: bool) {
        match self.root(pointer) {
            Some(Root::Local(local)) if varies => self.changed |= self.varying_locals.insert(local),
            Some(Root::Argument(index)) if varies => {
                let argument = &mut self.arguments[index];
                self.changed |= !argument.pointee_varies;
                argument.pointee_varies = true;
            }
            _ => {}
        }
    }

    /// The variable that a pointer points into; `None` for what is no pointer.
    pub(super) fn root(&self, pointer: Handle<Expression>) -> Option<Root> {
        match self.function.expressions[pointer] {
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => self.root(base),
            Expression::LocalVariable(local) => Some(Root::Local(local)),
            Expression::FunctionArgument(index) => {
                let ty = self.function.arguments[index as usize].ty;
                match self.module.types[ty].inner {
                    TypeInner::Pointer { space: AddressSpace::Function, .. }
                    | TypeInner::ValuePointer { space: AddressSpace::Function, .. } => {
                        Some(Root::Argument(index as usize))
                    }
                    TypeInner::Pointer { space, .. } | TypeInner::ValuePointer { space, .. } => {
                        Some(Root::Memory { varies: space_varies(space) })
                    }
                    _ => None,
                }
            }
            Expression::GlobalVariable(global) => {
                Some(Root::Memory { varies: space_varies(self.module.global_variables[global].space) })
            }
            _ => None,
        }
    }

    pub(super) fn memory_varies(&self, root: Root) -> bool {
        match root {
            Root::Local(local) => self.varying_locals.contains(&local),
            Root::Argument(index) => self.arguments[index].pointee_varies,
            Root::Memory { varies } => varies,
        }
    }

    /// Whether an expression's value, or the address it denotes, may differ between invocations.
    pub(super) fn varies(&mut self, expression: Handle<Expression>) -> bool {
        if let Some(&known) = self.memo.get(&expression) {
            return known;
        }
        let varies = self.compute(expression);
        self.memo.insert(expression, varies);
        varies
    }

    fn compute(&mut self, expression: Handle<Expression>) -> bool {
        match &self.function.expressions[expression] {
            Expression::Literal(_)
            | Expression::Constant(_)
            | Expression::Override(_)
            | Expression::ZeroValue(_)
            | Expression::GlobalVariable(_)
            | Expression::LocalVariable(_)
            | Expression::WorkGroupUniformLoadResult { .. }
            | Expression::ArrayLength(_) => false,
            &Expression::FunctionArgument(index) => self.arguments[index as usize].varies,
            &Expression::AccessIndex { base, index } => {
                self.io_member_varies(base, index).unwrap_or_else(|| self.varies(base))
            }
            &Expression::Load { pointer } => {
                self.varies(pointer) || self.root(pointer).is_none_or(|root| self.memory_varies(root))
            }
            Expression::CallResult(_) => self.varying_results.contains(&expression),
            &Expression::Access { base, index } => self.varies(base) || self.varies(index),
            &Expression::Splat { value, .. } => self.varies(value),
            &Expression::Swizzle { vector, .. } => self.varies(vector),
            &Expression::Unary { expr, .. } | &Expression::As { expr, .. } => self.varies(expr),
            &Expression::Relational { argument, .. } => self.varies(argument),
            &Expression::Binary { left, right, .. } => self.varies(left) || self.varies(right),
            &Expression::Select { condition, accept, reject } => {
                self.varies(condition) || self.varies(accept) || self.varies(reject)
            }
            &Expression::Math { arg, arg1, arg2, arg3, .. } => {
                [Some(arg), arg1, arg2, arg3].into_iter().flatten().any(|argument| self.varies(argument))
            }
            Expression::Compose { components, .. } => components.iter().any(|&part| self.varies(part)),
            // Atomics, subgroup results, cooperative matrices and images differ by their nature.
            _ => true,
        }
    }

    /// The built-in values of an entry point may come as the members of a structure.
    fn io_member_varies(&self, base: Handle<Expression>, member: u32) -> Option<bool> {
        let Expression::FunctionArgument(index) = self.function.expressions[base] else {
            return None;
        };
        let argument = &self.function.arguments[index as usize];
        let TypeInner::Struct { members, .. } = &self.module.types[argument.ty].inner else {
            return None;
        };
        let binding = members.get(member as usize)?.binding.as_ref()?;
        Some(!is_uniform_binding(binding))
    }
}

/// Whether other invocations may have written to memory of this kind, or have their own.
fn space_varies(space: AddressSpace) -> bool {
    match space {
        AddressSpace::Uniform | AddressSpace::Immediate | AddressSpace::Handle => false,
        AddressSpace::Storage { access } => access.contains(StorageAccess::STORE),
        _ => true,
    }
}
