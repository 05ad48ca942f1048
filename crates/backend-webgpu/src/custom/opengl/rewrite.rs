//! Indices within their arrays, divisions and conversions that GLSL defines as WGSL does.
//!
//! naga's GLSL has no bounds checks, and takes `/`, `%` and conversions as GLSL has them: an index outside of
//! workgroup memory may write anywhere, and a remainder of negative numbers is undefined. So each index is
//! limited to the last element, a divisor that is 0, or -1 below the smallest integer, becomes 1, and a number
//! that is to be an integer is first limited to what integers can hold.

use std::collections::HashMap;

use backend_api::{Diagnostic, DiagnosticKind};
use naga::valid::FunctionInfo;
use naga::{
    Arena, ArraySize, BinaryOperator, Block, Expression, Function, Handle, Literal, MathFunction, Range,
    Scalar, ScalarKind, Span, Statement, TypeInner, UniqueArena, VectorSize,
};

use super::operands;

type Value = Handle<Expression>;

/// Rewrites a function of a valid module, about which the module's validator found out `info`.
///
/// # Errors
/// If it has something that no kernel on OpenGL may have.
pub(super) fn function(
    function: &mut Function,
    types: &UniqueArena<naga::Type>,
    info: &FunctionInfo,
) -> Result<(), Diagnostic> {
    let unknown = || {
        let said = Diagnostic::new("a function has operations that OpenGL lacks");
        said.of_kind(DiagnosticKind::Unsupported)
    };
    let before = function.expressions.take();
    let mut rewriter = Rewriter {
        types,
        info,
        before: &before,
        after: Arena::new(),
        made: HashMap::with_capacity(before.len()),
        due: Vec::new(),
        span: Span::UNDEFINED,
    };
    for (handle, expression) in before.iter() {
        rewriter.add(handle, expression).ok_or_else(unknown)?;
    }
    rewriter.block(&mut function.body).ok_or_else(unknown)?;
    let new = |value: &Value| rewriter.made.get(value).map(|made| made.value);
    for (_, local) in function.local_variables.iter_mut() {
        local.init = local.init.as_ref().and_then(new);
    }
    let names = std::mem::take(&mut function.named_expressions);
    function.named_expressions =
        names.into_iter().filter_map(|(value, name)| Some((new(&value)?, name))).collect();
    function.expressions = rewriter.after;
    Ok(())
}

/// What became of an expression.
struct Made {
    value: Value,
    /// What has to be evaluated before it.
    before: Vec<Value>,
}

/// Numbers of one kind: the components of a vector, or one.
#[derive(Clone, Copy)]
struct Numbers {
    scalar: Scalar,
    size: Option<VectorSize>,
}

struct Rewriter<'a> {
    types: &'a UniqueArena<naga::Type>,
    info: &'a FunctionInfo,
    before: &'a Arena<Expression>,
    after: Arena<Expression>,
    made: HashMap<Value, Made>,
    /// Expressions that have been added for the one that is being made.
    due: Vec<Value>,
    span: Span,
}

impl Rewriter<'_> {
    /// Replaces a value by what was made of it, unless nothing was yet: then it is false.
    fn replace(&self, value: &mut Value) -> bool {
        let made = self.made.get(value);
        if let Some(made) = made {
            *value = made.value;
        }
        made.is_some()
    }

    fn add(&mut self, handle: Value, old: &Expression) -> Option<()> {
        self.span = self.before.get_span(handle);
        let mut new = old.clone();
        let mut is_known = true;
        operands::of_expression(&mut new, |value| is_known &= self.replace(value))?;
        if !is_known {
            return None;
        }
        let new = self.rewritten(old, &new).unwrap_or(new);
        let value = self.after.append(new, self.span);
        let before = std::mem::take(&mut self.due);
        self.made.insert(handle, Made { value, before });
        Some(())
    }

    /// What an expression becomes: types are told by the `old` operands, the values are the `new` ones.
    fn rewritten(&mut self, old: &Expression, new: &Expression) -> Option<Expression> {
        match (old, new) {
            (
                &Expression::Access { base: old_base, index: old_index },
                &Expression::Access { base, index },
            ) => {
                let last = self.last(old_base, base)?;
                let is_signed = *self.inner(old_index) != TypeInner::Scalar(Scalar::U32);
                // One below zero becomes a very large one.
                let bits = Expression::As { expr: index, kind: ScalarKind::Uint, convert: None };
                let index = if is_signed { self.push(bits) } else { index };
                Some(Expression::Access { base, index: self.smaller(index, last) })
            }
            (&Expression::AccessIndex { base: old_base, .. }, &Expression::AccessIndex { base, index })
                if index > 0 && self.length(old_base) == Some(ArraySize::Dynamic) =>
            {
                let last = self.last(old_base, base)?;
                let index = self.literal(Literal::U32(index));
                Some(Expression::Access { base, index: self.smaller(index, last) })
            }
            (
                &Expression::Binary { op, left: old_left, right: old_right },
                &Expression::Binary { left, right, .. },
            ) => {
                let numbers =
                    self.numbers(old_left).filter(|_| self.inner(old_left) == self.inner(old_right))?;
                self.quotient(op, numbers, left, right, self.is_harmless(old_right))
            }
            (&Expression::As { expr: old_expr, .. }, &Expression::As { expr, kind, convert: Some(4) }) => {
                let numbers = self.numbers(old_expr).filter(|numbers| numbers.scalar == Scalar::F32)?;
                // The largest numbers of f32 that the types hold.
                let (least, most) = match kind {
                    ScalarKind::Sint => (-2_147_483_648.0, 2_147_483_520.0),
                    ScalarKind::Uint => (0.0, 4_294_967_040.0),
                    _ => return None,
                };
                let least = self.number(Literal::F32(least), numbers);
                let most = self.number(Literal::F32(most), numbers);
                let fun = MathFunction::Clamp;
                let clamp =
                    Expression::Math { fun, arg: expr, arg1: Some(least), arg2: Some(most), arg3: None };
                Some(Expression::As { expr: self.push(clamp), kind, convert: Some(4) })
            }
            _ => None,
        }
    }

    /// A division or remainder of integers.
    fn quotient(
        &mut self,
        op: BinaryOperator,
        numbers: Numbers,
        left: Value,
        right: Value,
        is_harmless: bool,
    ) -> Option<Expression> {
        let is_signed = match numbers.scalar {
            Scalar::I32 => true,
            Scalar::U32 => false,
            _ => return None,
        };
        let is_remainder = match op {
            BinaryOperator::Divide => false,
            BinaryOperator::Modulo => true,
            _ => return None,
        };
        if is_harmless && !(is_signed && is_remainder) {
            return None;
        }
        let right = if is_harmless { right } else { self.divisor(numbers, is_signed, left, right) };
        if !(is_signed && is_remainder) {
            return Some(Expression::Binary { op, left, right });
        }
        let quotient = self.binary(BinaryOperator::Divide, left, right);
        let whole = self.binary(BinaryOperator::Multiply, quotient, right);
        Some(Expression::Binary { op: BinaryOperator::Subtract, left, right: whole })
    }

    /// The divisor, or 1 where WGSL has the quotient be the dividend: 0 + 1, and -1 + 2 below the least integer.
    fn divisor(&mut self, numbers: Numbers, is_signed: bool, left: Value, right: Value) -> Value {
        let number = |number: i32| if is_signed { Literal::I32(number) } else { Literal::U32(number as u32) };
        let is_zero = self.is(right, number(0), numbers);
        let divisor = self.binary(BinaryOperator::Add, right, is_zero);
        if !is_signed {
            return divisor;
        }
        let is_least = self.is(left, number(i32::MIN), numbers);
        let is_minus_one = self.is(right, number(-1), numbers);
        let overflows = self.binary(BinaryOperator::Multiply, is_least, is_minus_one);
        let two = self.binary(BinaryOperator::Add, overflows, overflows);
        self.binary(BinaryOperator::Add, divisor, two)
    }

    /// 1 where a number is the given one, else 0. A selection by vectors isn't in every GLSL.
    fn is(&mut self, value: Value, number: Literal, numbers: Numbers) -> Value {
        let number = self.number(number, numbers);
        let equal = self.binary(BinaryOperator::Equal, value, number);
        self.push(Expression::As { expr: equal, kind: numbers.scalar.kind, convert: Some(4) })
    }

    /// Whether a divisor is known to be neither 0 nor -1.
    fn is_harmless(&self, divisor: Value) -> bool {
        match self.before[divisor] {
            Expression::Splat { value, .. } => self.is_harmless(value),
            Expression::Literal(Literal::I32(number)) => number != 0 && number != -1,
            Expression::Literal(Literal::U32(number)) => number != 0,
            _ => false,
        }
    }

    fn inner(&self, old: Value) -> &TypeInner {
        self.info[old].ty.inner_with(self.types)
    }

    fn numbers(&self, old: Value) -> Option<Numbers> {
        match *self.inner(old) {
            TypeInner::Scalar(scalar) => Some(Numbers { scalar, size: None }),
            TypeInner::Vector { size, scalar } => Some(Numbers { scalar, size: Some(size) }),
            _ => None,
        }
    }

    /// How many elements something has that is indexed.
    fn length(&self, old: Value) -> Option<ArraySize> {
        let inner = match *self.inner(old) {
            TypeInner::Pointer { base, .. } => &self.types[base].inner,
            ref value => value,
        };
        let count = |count: u32| std::num::NonZeroU32::new(count).map(ArraySize::Constant);
        match *inner {
            TypeInner::Array { size, .. } => Some(size),
            TypeInner::Vector { size, .. } | TypeInner::ValuePointer { size: Some(size), .. } => {
                count(size as u32)
            }
            TypeInner::Matrix { columns, .. } => count(columns as u32),
            _ => None,
        }
    }

    /// The index of the last element. An array without a length has at least one, as launches check.
    fn last(&mut self, old_base: Value, base: Value) -> Option<Value> {
        match self.length(old_base)? {
            ArraySize::Constant(count) => Some(self.literal(Literal::U32(count.get() - 1))),
            ArraySize::Dynamic => {
                let count = self.push(Expression::ArrayLength(base));
                let one = self.literal(Literal::U32(1));
                Some(self.binary(BinaryOperator::Subtract, count, one))
            }
            ArraySize::Pending(_) => None,
        }
    }

    fn smaller(&mut self, a: Value, b: Value) -> Value {
        let fun = MathFunction::Min;
        self.push(Expression::Math { fun, arg: a, arg1: Some(b), arg2: None, arg3: None })
    }

    fn binary(&mut self, op: BinaryOperator, left: Value, right: Value) -> Value {
        self.push(Expression::Binary { op, left, right })
    }

    /// A number, in each component of a vector.
    fn number(&mut self, number: Literal, numbers: Numbers) -> Value {
        let value = self.literal(number);
        match numbers.size {
            Some(size) => self.push(Expression::Splat { size, value }),
            None => value,
        }
    }

    /// A literal, which is never evaluated by a statement.
    fn literal(&mut self, literal: Literal) -> Value {
        self.after.append(Expression::Literal(literal), self.span)
    }

    /// An expression that is evaluated before the one that is being made.
    fn push(&mut self, expression: Expression) -> Value {
        let value = self.after.append(expression, self.span);
        self.due.push(value);
        value
    }

    fn block(&self, block: &mut Block) -> Option<()> {
        let mut after = Block::with_capacity(block.len());
        for (mut statement, span) in std::mem::take(block).span_into_iter() {
            if let Statement::Emit(range) = &statement {
                for old in range.clone() {
                    let made = self.made.get(&old)?;
                    for &value in made.before.iter().chain([&made.value]) {
                        after.push(Statement::Emit(Range::new_from_bounds(value, value)), span);
                    }
                }
                continue;
            }
            let mut is_known = true;
            operands::of_statement(&mut statement, |value| is_known &= self.replace(value))?;
            if !is_known {
                return None;
            }
            operands::blocks(&mut statement).into_iter().try_for_each(|block| self.block(block))?;
            after.push(statement, span);
        }
        *block = after;
        Some(())
    }
}
