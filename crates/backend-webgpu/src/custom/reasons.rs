//! Common faults in words, where naga says them with the numbers by which it knows expressions and types.

use backend_api::SourcePlace;
use naga::back::binary_operation_str;
use naga::front::Typifier;
use naga::proc::{ResolveContext, TypeResolution};
use naga::valid::{
    CallError, ConstExpressionError, EntryPointError, ExpressionError, FunctionError, GlobalVariableError,
    LiteralError, TypeError, TypeFlags, ValidationError, WidthError,
};
use naga::{
    AddressSpace, Block, Expression, Function, GlobalVariable, Handle, Literal, Module, ScalarKind,
    Statement, Type, TypeInner,
};

use super::{extent, types};

/// What is wrong, if it is a fault that there are words for here.
pub(super) fn reason(module: &Module, error: &ValidationError) -> Option<String> {
    match error {
        ValidationError::Function { handle, name, source } => {
            InFunction { module, function: module.functions.try_get(*handle).ok()?, name }.reason(source)
        }
        ValidationError::EntryPoint { name, source, .. } => match source {
            EntryPointError::Function(source) => {
                let entry = module.entry_points.iter().find(|entry| entry.name == *name)?;
                InFunction { module, function: &entry.function, name }.reason(source)
            }
            EntryPointError::BindingCollision(handle) => collision(module, *handle),
            _ => None,
        },
        ValidationError::GlobalVariable { handle, name, source } => {
            global(module, &module.global_variables[*handle], name, source)
        }
        ValidationError::Type { source: TypeError::WidthError(width), .. }
        | ValidationError::ConstExpression { source: ConstExpressionError::Width(width), .. }
        | ValidationError::ConstExpression {
            source: ConstExpressionError::Literal(LiteralError::Width(width)),
            ..
        } => missing(width),
        _ => None,
    }
}

/// The type, constant, variable or function that a fault is in, if it has a name.
pub(super) fn within(error: &ValidationError) -> Option<String> {
    let (what, name) = match error {
        ValidationError::Type { name, .. } => ("type", name),
        ValidationError::Constant { name, .. } | ValidationError::Override { name, .. } => ("constant", name),
        ValidationError::GlobalVariable { name, .. } => ("variable", name),
        ValidationError::Function { name, .. } => ("function", name),
        ValidationError::EntryPoint { name, .. } => ("entry point", name),
        _ => return None,
    };
    (!name.is_empty()).then(|| format!("in the {what} `{name}`"))
}

/// Whether a place is the name of an extension that a directive enables, such as `subgroups` in `enable subgroups;`.
pub(super) fn enables(text: &str, place: &SourcePlace, extension: &str) -> bool {
    let code = extent::without_comments(text);
    let named = code.get(place.bytes.clone()).is_some_and(|found| found.trim() == extension);
    let before = code.get(..place.bytes.start).unwrap_or_default();
    let directive = before.rsplit(';').next().unwrap_or_default().trim_start();
    let rest = directive.strip_prefix("enable");
    named && rest.is_some_and(|rest| rest.starts_with(char::is_whitespace))
}

/// A feature that a type needs.
fn missing(error: &WidthError) -> Option<String> {
    match error {
        WidthError::MissingCapability { name, .. } => Some(optional(name)),
        _ => None,
    }
}

fn optional(ty: &str) -> String {
    format!("`{ty}` is an optional feature, which isn't there")
}

/// Two variables of one binding.
fn collision(module: &Module, handle: Handle<GlobalVariable>) -> Option<String> {
    let variable = &module.global_variables[handle];
    let at = variable.binding?;
    let mut others = module.global_variables.iter();
    let (_, other) = others.find(|&(other, found)| other != handle && found.binding == Some(at))?;
    let (name, other) = (variable.name.as_deref()?, other.name.as_deref()?);
    Some(format!(
        "`{name}` has the binding of `{other}`: both are @group({}) @binding({})",
        at.group, at.binding
    ))
}

fn global(
    module: &Module,
    variable: &GlobalVariable,
    name: &str,
    error: &GlobalVariableError,
) -> Option<String> {
    let GlobalVariableError::MissingTypeFlags { required, seen } = error else { return None };
    let space = match variable.space {
        AddressSpace::Storage { .. } => "storage",
        AddressSpace::Uniform => "uniform",
        _ => return None,
    };
    let ty = types::name(module, variable.ty);
    let lacks = |flag: TypeFlags| required.contains(flag) && !seen.contains(flag);
    if lacks(TypeFlags::HOST_SHAREABLE) && has_bool(module, variable.ty) {
        return Some(format!("`{name}` is {ty}, and a buffer can't hold bool: u32 can stand for it"));
    }
    Some(format!("`{name}` is {ty}, which var<{space}> can't hold"))
}

fn has_bool(module: &Module, ty: Handle<Type>) -> bool {
    let Ok(ty) = module.types.get_handle(ty) else { return false };
    match &ty.inner {
        TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. } => scalar.kind == ScalarKind::Bool,
        TypeInner::Array { base, .. } => has_bool(module, *base),
        TypeInner::Struct { members, .. } => members.iter().any(|member| has_bool(module, member.ty)),
        _ => false,
    }
}

/// A function that has a fault.
struct InFunction<'a> {
    module: &'a Module,
    function: &'a Function,
    name: &'a str,
}

impl InFunction<'_> {
    fn reason(&self, error: &FunctionError) -> Option<String> {
        match *error {
            FunctionError::Expression { handle, ref source } => self.expression(handle, source),
            FunctionError::InvalidReturnType { expression, expected_ty } => {
                let name = self.name;
                let declared = expected_ty.map(|ty| types::name(self.module, ty));
                Some(match (expression, declared) {
                    (None, Some(declared)) => {
                        format!("`{name}` has to return {declared}, and ends here without a value")
                    }
                    (Some(value), Some(declared)) => {
                        format!("`{name}` has to return {declared}, and this is {}", self.ty(value)?)
                    }
                    _ => format!("`{name}` returns a value, but declares no result"),
                })
            }
            FunctionError::InvalidIfType(condition) => {
                Some(format!("a condition has to be a boolean, and this is {}", self.ty(condition)?))
            }
            FunctionError::InvalidStorePointer(pointer) => self.read_only(pointer),
            FunctionError::InvalidCall { function, ref error } => {
                let callee = self.module.functions.try_get(function).ok()?;
                let name = callee.name.as_deref()?;
                match *error {
                    CallError::ArgumentCount { required, seen } => {
                        Some(format!("`{name}` takes {required} arguments, and {seen} are given"))
                    }
                    CallError::ArgumentType { index, required, seen_expression } => {
                        let argument = callee.arguments.get(index)?.name.as_deref()?;
                        let required = types::name(self.module, required);
                        let given = self.ty(seen_expression)?;
                        Some(format!(
                            "the argument `{argument}` of `{name}` is {required}, and {given} is given"
                        ))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// A store to a variable that can't be written.
    fn read_only(&self, mut pointer: Handle<Expression>) -> Option<String> {
        let variable = loop {
            match self.function.expressions[pointer] {
                Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => pointer = base,
                Expression::GlobalVariable(handle) => break &self.module.global_variables[handle],
                _ => return None,
            }
        };
        let name = variable.name.as_deref()?;
        match variable.space {
            AddressSpace::Storage { .. } => {
                Some(format!("`{name}` is var<storage, read>: what is written is var<storage, read_write>"))
            }
            AddressSpace::Uniform => Some(format!("`{name}` is var<uniform>, which can't be written")),
            _ => None,
        }
    }

    fn expression(&self, handle: Handle<Expression>, error: &ExpressionError) -> Option<String> {
        match *error {
            ExpressionError::IndexOutOfBounds(base, index) => {
                let ty = self.ty(base)?;
                let of = self.variable(base).map(|name| format!("`{name}`: ")).unwrap_or_default();
                Some(format!("index {index} is out of the bounds of {of}{ty}"))
            }
            ExpressionError::InvalidBinaryOperandTypes { op, lhs_expr, rhs_expr, .. } => Some(format!(
                "`{}` can't take {} and {}",
                binary_operation_str(op),
                self.ty(lhs_expr)?,
                self.ty(rhs_expr)?
            )),
            // What isn't there is the type that is cast to.
            ExpressionError::InvalidCastArgument => match self.function.expressions[handle] {
                Expression::As { kind: ScalarKind::Float, convert: Some(2), .. } => Some(optional("f16")),
                _ => None,
            },
            ExpressionError::Literal(LiteralError::Width(WidthError::Abstract)) => self.untyped(handle),
            ExpressionError::Literal(LiteralError::Width(ref width)) => missing(width),
            _ => None,
        }
    }

    /// A number without a type that gets none: the other operand has one that it can't take, or it is returned where
    /// nothing is.
    fn untyped(&self, handle: Handle<Expression>) -> Option<String> {
        if self.function.result.is_none() && returns(&self.function.body, handle) {
            return Some(format!("`{}` returns a value, but declares no result", self.name));
        }
        let number = match self.function.expressions[handle] {
            Expression::Literal(Literal::AbstractFloat(number)) => format!("{number:?}"),
            Expression::Literal(Literal::AbstractInt(number)) => number.to_string(),
            _ => return None,
        };
        let beside = self.function.expressions.iter().find_map(|(_, expression)| match *expression {
            Expression::Binary { op, left, right } if left == handle => Some((op, right)),
            Expression::Binary { op, left, right } if right == handle => Some((op, left)),
            _ => None,
        });
        let of = match beside {
            Some((op, other)) => {
                format!("`{}` can't take {number} and {}", binary_operation_str(op), self.ty(other)?)
            }
            None => format!("{number} has no type here that it could take"),
        };
        Some(format!("{of}: both sides of an operator have one type, as in f32(i) * 2.5"))
    }

    /// The type of an expression, or of what a pointer points to.
    fn ty(&self, handle: Handle<Expression>) -> Option<String> {
        let Function { expressions, local_variables, arguments, .. } = self.function;
        let mut typifier = Typifier::new();
        let context = ResolveContext::with_locals(self.module, local_variables, arguments);
        typifier.grow(handle, expressions, &context).ok()?;
        match &typifier[handle] {
            TypeResolution::Handle(ty) => Some(types::name(self.module, *ty)),
            TypeResolution::Value(inner) => Some(types::name_of(self.module, inner, None)),
        }
    }

    /// The name of a variable that an expression is all of.
    fn variable(&self, handle: Handle<Expression>) -> Option<&str> {
        match self.function.expressions[handle] {
            Expression::GlobalVariable(variable) => self.module.global_variables[variable].name.as_deref(),
            Expression::LocalVariable(variable) => self.function.local_variables[variable].name.as_deref(),
            Expression::Load { pointer } => self.variable(pointer),
            _ => self.function.named_expressions.get(&handle).map(String::as_str),
        }
    }
}

/// Whether a block returns a value.
fn returns(block: &Block, wanted: Handle<Expression>) -> bool {
    block.iter().any(|statement| match statement {
        Statement::Return { value } => *value == Some(wanted),
        Statement::Block(block) => returns(block, wanted),
        Statement::If { accept, reject, .. } => returns(accept, wanted) || returns(reject, wanted),
        Statement::Switch { cases, .. } => cases.iter().any(|case| returns(&case.body, wanted)),
        Statement::Loop { body, continuing, .. } => returns(body, wanted) || returns(continuing, wanted),
        _ => false,
    })
}
