//! The handles within naga's expressions and statements.

use naga::{AtomicFunction, Block, Expression, Handle, Statement};

type Value = Handle<Expression>;

/// Changes the operands of an expression. `None` for what no kernel on OpenGL may have.
pub(super) fn of_expression(expression: &mut Expression, mut change: impl FnMut(&mut Value)) -> Option<()> {
    match expression {
        Expression::Literal(_)
        | Expression::Constant(_)
        | Expression::ZeroValue(_)
        | Expression::FunctionArgument(_)
        | Expression::GlobalVariable(_)
        | Expression::LocalVariable(_)
        | Expression::CallResult(_)
        | Expression::AtomicResult { .. }
        | Expression::WorkGroupUniformLoadResult { .. } => {}
        Expression::Compose { components, .. } => components.iter_mut().for_each(change),
        Expression::Access { base, index } => [base, index].into_iter().for_each(change),
        Expression::AccessIndex { base: value, .. }
        | Expression::Splat { value, .. }
        | Expression::Swizzle { vector: value, .. }
        | Expression::Load { pointer: value }
        | Expression::Unary { expr: value, .. }
        | Expression::Relational { argument: value, .. }
        | Expression::As { expr: value, .. }
        | Expression::ArrayLength(value) => change(value),
        Expression::Binary { left, right, .. } => [left, right].into_iter().for_each(change),
        Expression::Select { condition, accept, reject } => {
            [condition, accept, reject].into_iter().for_each(change);
        }
        Expression::Math { arg, arg1, arg2, arg3, .. } => {
            change(arg);
            [arg1, arg2, arg3].into_iter().flatten().for_each(change);
        }
        _ => return None,
    }
    Some(())
}

/// Changes the operands and results of a statement, but for what is in its blocks and an `Emit`. `None` for
/// what no kernel on OpenGL may have.
pub(super) fn of_statement(statement: &mut Statement, mut change: impl FnMut(&mut Value)) -> Option<()> {
    match statement {
        Statement::Emit(_)
        | Statement::Block(_)
        | Statement::Break
        | Statement::Continue
        | Statement::Kill
        | Statement::ControlBarrier(_)
        | Statement::MemoryBarrier(_) => {}
        Statement::If { condition: value, .. } | Statement::Switch { selector: value, .. } => change(value),
        Statement::Loop { break_if: value, .. } | Statement::Return { value } => {
            value.iter_mut().for_each(change);
        }
        Statement::Store { pointer, value } => [pointer, value].into_iter().for_each(change),
        Statement::Atomic { pointer, fun, value, result } => {
            if let AtomicFunction::Exchange { compare: Some(compare) } = fun {
                change(compare);
            }
            [pointer, value].into_iter().chain(result).for_each(change);
        }
        Statement::WorkGroupUniformLoad { pointer, result } => {
            [pointer, result].into_iter().for_each(change);
        }
        Statement::Call { arguments, result, .. } => arguments.iter_mut().chain(result).for_each(change),
        _ => return None,
    }
    Some(())
}

/// The blocks of a statement.
pub(super) fn blocks(statement: &mut Statement) -> Vec<&mut Block> {
    match statement {
        Statement::Block(block) => vec![block],
        Statement::If { accept, reject, .. } => vec![accept, reject],
        Statement::Switch { cases, .. } => cases.iter_mut().map(|case| &mut case.body).collect(),
        Statement::Loop { body, continuing, .. } => vec![body, continuing],
        _ => Vec::new(),
    }
}
