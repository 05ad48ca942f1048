//! What naga says is wrong, as diagnostics with places.

use std::error::Error;

use backend_api::{Diagnostic, DiagnosticKind, SourcePlace};
use naga::front::wgsl::ParseError;
use naga::proc::LayoutError;
use naga::valid::{EntryPointError, FunctionError, ValidationError};
use naga::{Block, Function, Handle, Module, Span, Statement, SwitchValue, Type, TypeInner, WithSpan};

use super::{extent, reasons, unplaced};

pub(super) fn parse_error(text: &str, error: &ParseError) -> Diagnostic {
    let mut said = Diagnostic::new(error.message()).of_kind(DiagnosticKind::Wgsl);
    let first = error.labels().next().map(|(span, _)| span);
    // What the text should have gone on with is at its end.
    let end = text.trim_end().len();
    let span = first.and_then(|span| place(text, span));
    said.place = span.or_else(|| first.map(|_| SourcePlace::of(text, end..end))).map(Box::new);
    if first.is_none() {
        said.place = unplaced::find(text).map(|range| Box::new(SourcePlace::of(text, range)));
    }
    for (span, label) in error.labels().filter(|(_, label)| !label.is_empty()) {
        let label = match place(text, span) {
            Some(place) if first != Some(span) => format!("line {}: {label}", place.line),
            _ => label.to_owned(),
        };
        // naga's label of a place of which its message says all.
        if label != said.reason && label != "see msg" {
            said.notes.push(label);
        }
    }
    said.notes.extend(error.notes().map(str::to_owned));
    if said.place.as_ref().is_some_and(|place| reasons::enables(text, place, "subgroups")) {
        said.reason = "`enable subgroups` can't be written here: leave it out".to_owned();
        said.notes = vec!["subgroup operations need no directive, only a device that has them".to_owned()];
    }
    said
}

/// The innermost cause is the reason, and what it is in are the notes. `module` is the one that was validated.
pub(super) fn validation_error(
    text: &str,
    module: Option<&Module>,
    error: &WithSpan<ValidationError>,
) -> Diagnostic {
    let mut causes = causes(error.as_inner());
    let reason = causes.pop().unwrap_or_default();
    let mut said = match error.as_inner() {
        // Without the number by which naga knows the type.
        ValidationError::Layouter(layout) => {
            Diagnostic::new(layout.inner.to_string()).of_kind(DiagnosticKind::Limit)
        }
        _ => Diagnostic::new(reason).of_kind(DiagnosticKind::Wgsl),
    };
    // Where a value is made may be far from the statement that can't take it.
    let span = module.and_then(|module| statement_at_fault(module, error.as_inner()));
    said.place = span.and_then(|span| place(text, span)).map(Box::new);
    for (span, label) in error.spans() {
        let found = place(text, *span);
        let made = match (&said.place, &found) {
            (Some(said), Some(found)) if said.line != found.line => format!("line {}: ", found.line),
            _ => String::new(),
        };
        if said.place.is_none() {
            said.place = found.map(Box::new);
        }
        if !made.is_empty() && label.starts_with("naga::") {
            said.notes.push(format!("{made}its value is made here"));
        } else if !label.is_empty() && !label.starts_with("naga::") {
            said.notes.push(format!("{made}{label}"));
        }
    }
    if said.place.is_none() {
        said.place = match error.as_inner() {
            ValidationError::EntryPoint { name, .. } => function(text, name),
            ValidationError::Type { handle, .. }
            | ValidationError::Layouter(LayoutError { ty: handle, .. }) => {
                module.and_then(|module| first_of_type(module, *handle)).and_then(|span| place(text, span))
            }
            _ => None,
        }
        .map(Box::new);
    }
    said.notes.extend(reasons::within(error.as_inner()));
    said
}

/// The texts of an error and of its causes, the innermost last.
pub(super) fn causes(error: &dyn Error) -> Vec<String> {
    std::iter::successors(Some(error), |&error| error.source()).map(ToString::to_string).collect()
}

pub(super) fn located(mut said: Diagnostic, place: Option<SourcePlace>) -> Diagnostic {
    said.place = place.map(Box::new);
    said
}

pub(super) fn place(text: &str, span: Span) -> Option<SourcePlace> {
    span.to_range().map(|range| SourcePlace::of(text, range))
}

/// The place of a function's name, which naga's entry points don't keep.
pub(super) fn function(text: &str, name: &str) -> Option<SourcePlace> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let code = extent::without_comments(text);
    code.match_indices("fn").find_map(|(at, keyword)| {
        let (before, rest) = (code.get(..at)?, code.get(at + keyword.len()..)?);
        let found = rest.trim_start();
        let start = at + keyword.len() + rest.len() - found.len();
        let follows = found.strip_prefix(name)?;
        let is_it = !before.ends_with(is_name) && found.len() < rest.len() && !follows.starts_with(is_name);
        is_it.then(|| SourcePlace::of(text, start..start + name.len()))
    })
}

/// The statement that can't be as it is, where naga tells an expression of it, or nothing at all.
fn statement_at_fault(module: &Module, error: &ValidationError) -> Option<Span> {
    let entry = |name: &str| module.entry_points.iter().find(|entry| entry.name == name);
    let (function, error) = match error {
        ValidationError::Function { handle, source, .. } => (module.functions.try_get(*handle).ok()?, source),
        ValidationError::EntryPoint { name, source, .. } => match source {
            EntryPointError::Function(source) => (&entry(name)?.function, source),
            EntryPointError::ForbiddenStageOperations => {
                return first_statement(entry(name)?, module, &|statement| {
                    matches!(statement, Statement::Kill)
                });
            }
            _ => return None,
        },
        _ => return None,
    };
    let is_at_fault = |statement: &Statement| match (error, statement) {
        (FunctionError::InvalidIfType(fault), Statement::If { condition: value, .. })
        | (FunctionError::InvalidSwitchType(fault), Statement::Switch { selector: value, .. }) => {
            fault == value
        }
        (
            FunctionError::InvalidReturnType { expression: Some(fault), .. },
            Statement::Return { value: Some(value) },
        ) => fault == value,
        (FunctionError::ConflictingSwitchCase(value), Statement::Switch { cases, .. }) => {
            cases.iter().filter(|case| case.value == *value).count() > 1
        }
        (FunctionError::MultipleDefaultCases, Statement::Switch { cases, .. }) => {
            cases.iter().filter(|case| case.value == SwitchValue::Default).count() > 1
        }
        _ => false,
    };
    find(&function.body, &is_at_fault)
}

/// The first such statement of an entry point, or else of the functions, one of which it calls.
fn first_statement(
    entry: &naga::EntryPoint,
    module: &Module,
    is_it: &dyn Fn(&Statement) -> bool,
) -> Option<Span> {
    let functions = module.functions.iter().map(|(_, function)| function);
    let mut all = std::iter::once(&entry.function).chain(functions);
    all.find_map(|function: &Function| find(&function.body, is_it))
}

/// The place of the first statement that is meant, in the order of the text.
fn find(block: &Block, is_it: &dyn Fn(&Statement) -> bool) -> Option<Span> {
    block.span_iter().find_map(|(statement, &span)| {
        if is_it(statement) {
            return Some(span);
        }
        match statement {
            Statement::Block(block) => find(block, is_it),
            Statement::If { accept, reject, .. } => find(accept, is_it).or_else(|| find(reject, is_it)),
            Statement::Switch { cases, .. } => cases.iter().find_map(|case| find(&case.body, is_it)),
            Statement::Loop { body, continuing, .. } => find(body, is_it).or_else(|| find(continuing, is_it)),
            _ => None,
        }
    })
}

/// The first variable, member or type with a name that has something of a type without one.
fn first_of_type(module: &Module, wanted: Handle<Type>) -> Option<Span> {
    let mut has = vec![false; module.types.len()];
    // A type stands behind those that it is made of.
    for (handle, ty) in module.types.iter() {
        let is_part = |part: &Handle<Type>| has.get(part.index()) == Some(&true);
        let is_it = handle == wanted
            || match &ty.inner {
                TypeInner::Array { base, .. } | TypeInner::Pointer { base, .. } => is_part(base),
                TypeInner::Struct { members, .. } => members.iter().any(|member| is_part(&member.ty)),
                _ => false,
            };
        if let Some(has) = has.get_mut(handle.index()) {
            *has = is_it;
        }
    }
    let has = |ty: Handle<Type>| has.get(ty.index()) == Some(&true);
    let of_type = module.types.iter().filter(|&(handle, ty)| has(handle) && ty.name.is_some());
    let mut of_type = of_type.map(|(handle, _)| module.types.get_span(handle)).filter(Span::is_defined);
    let globals = module.global_variables.iter().filter(|(_, variable)| has(variable.ty));
    let mut globals = globals.map(|(handle, _)| module.global_variables.get_span(handle));
    let functions = module.functions.iter().map(|(_, function)| function);
    let all = functions.chain(module.entry_points.iter().map(|entry| &entry.function));
    let mut locals = all.flat_map(|function| {
        let locals = function.local_variables.iter().filter(|(_, variable)| has(variable.ty));
        locals.map(|(handle, _)| function.local_variables.get_span(handle))
    });
    of_type.next().or_else(|| globals.next()).or_else(|| locals.next())
}
