//! Adds comparisons to the accesses of a kernel.
//!
//! What counts is WGSL, put before the kernel's text. The calls of it are added to what naga makes of the
//! text, behind each access: the access stays as it is, and so do its conditions.

use std::collections::HashMap;
use std::fmt::Write as _;

use naga::front::wgsl;
use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{
    AddressSpace, ArraySize, Block, CooperativeData, Expression, Function, Handle, Literal, Module, Range,
    ResourceBinding, Scalar, Span, Statement, TypeInner,
};

use super::{OPERANDS, ranges_at};
use crate::kernels::{KernelSource, Variant, validate};

/// What is accessed, by the numbers that the counting functions take.
pub(super) const PLACES: [&str; OPERANDS + 2] = [
    "binding 0",
    "binding 1",
    "binding 2",
    "binding 3",
    "binding 4",
    "binding 5",
    "binding 6",
    "binding 7",
    "binding 8",
    "binding 9",
    "binding 10",
    "binding 11",
    "binding 12",
    "binding 13",
    "binding 14",
    "binding 15",
    "an array in workgroup memory",
    "an array of an invocation",
];
const WORKGROUP: u32 = OPERANDS as u32;
const INVOCATION: u32 = WORKGROUP + 1;

/// Counters of a kernel: for each place how many accesses lie outside, and the largest index of those.
pub(super) const SLOT: usize = 2 * PLACES.len();

/// Begins the name of everything that is added.
const PREFIX: &str = "out_of_bounds";

/// The kernel of a valid text with its accesses counted, from the counter `slot` on.
///
/// # Errors
/// What can't be counted.
pub(super) fn instrument(variant: &Variant, text: &str, slot: usize) -> Result<Module, String> {
    let operands = operands(&parse(text)?);
    let text = with_ranges(&with_counting(text, &counting(&operands, variant.source, slot)))?;
    let mut module = parse(&text)?;
    if ranges_offset(&module) != Some(ranges_at(variant) as u32) {
        return Err("the ranges of its operands aren't behind its parameters".to_owned());
    }
    let info = validate(&module, &text)?;
    add_calls(&mut module, &info)?;
    Ok(module)
}

fn parse(text: &str) -> Result<Module, String> {
    wgsl::parse_str(text).map_err(|error| error.emit_to_string(text))
}

/// The bindings of arrays in storage buffers, and the bytes of an element.
fn operands(module: &Module) -> Vec<(u32, u32)> {
    let operand = |binding, ty| match module.types[ty].inner {
        TypeInner::Array { size: ArraySize::Dynamic, stride, .. } => Some((binding, stride)),
        _ => None,
    };
    let globals = module.global_variables.iter().map(|(_, global)| global);
    globals
        .filter_map(|global| match (global.space, global.binding) {
            (AddressSpace::Storage { .. }, Some(ResourceBinding { group: 0, binding })) => {
                operand(binding, global.ty)
            }
            _ => None,
        })
        .collect()
}

/// The functions that count. An invocation counts in variables of its own, without branches, as compilers
/// take long over many of those, and adds to the counters at its end.
fn counting(operands: &[(u32, u32)], source: &KernelSource, slot: usize) -> String {
    let counters = source.reads.len() + source.writes.len();
    let mut text =
        format!("@group(0) @binding({counters}) var<storage, read_write> {PREFIX}: array<atomic<u32>>;\n");
    let places = || operands.iter().map(|&(binding, _)| binding).chain([WORKGROUP, INVOCATION]);
    for place in places() {
        _ = write!(
            text,
            "var<private> {PREFIX}_found_{place}: u32;
var<private> {PREFIX}_largest_{place}: u32;
fn {PREFIX}_note_{place}(outside: bool, index: u32) {{
  {PREFIX}_found_{place} += u32(outside);
  {PREFIX}_largest_{place} = max({PREFIX}_largest_{place}, select(0u, index, outside));
}}
fn {PREFIX}_fixed_{place}(length: u32, index: u32) {{
  {PREFIX}_note_{place}(index >= length, index);
}}
fn {PREFIX}_matrix_fixed_{place}(length: u32, lines: u32, extent: u32, stride: u32, index: u32) {{
  {PREFIX}_fixed_{place}(length, index + (lines - 1u) * stride + extent - 1u);
}}
"
        );
    }
    for &(binding, stride) in operands {
        let (vector, part) = (binding / 2, if binding % 2 == 0 { "xy" } else { "zw" });
        // What is smaller than a word is compared with the operand's bytes, else with its words.
        let words = if stride < 4 { "range" } else { "vec2<u32>(range.x & ~3u, (range.y + 3u) & ~3u)" };
        // Where there is nothing to load, the first element of an input may be loaded and not used.
        let first = if (binding as usize) < source.reads.len() { "(index > 0u) & " } else { "" };
        _ = write!(
            text,
            "fn {PREFIX}_{binding}(index: u32) {{
  let range = params.{PREFIX}_ranges[{vector}].{part};
  let bytes = {words};
  let before = {first}(index < (bytes.x + {stride}u - 1u) / {stride}u);
  {PREFIX}_note_{binding}(before | (index >= bytes.y / {stride}u), index);
}}
fn {PREFIX}_matrix_{binding}(lines: u32, extent: u32, stride: u32, index: u32) {{
  {PREFIX}_{binding}(index + (lines - 1u) * stride + extent - 1u);
}}
"
        );
    }
    let all: Vec<String> = places().map(|place| format!("{PREFIX}_found_{place}")).collect();
    _ = write!(
        text,
        "fn {PREFIX}_add() {{\n  if ({}) > 0u {{\n    atomicStore(&{PREFIX}[0], 1u);\n",
        all.join(" | ")
    );
    for place in places() {
        let at = slot + 2 * place as usize;
        _ = write!(
            text,
            "    atomicAdd(&{PREFIX}[{at}], {PREFIX}_found_{place});
    atomicMax(&{PREFIX}[{}], {PREFIX}_largest_{place});
",
            at + 1
        );
    }
    text.push_str("  }\n}\n");
    text
}

/// The text with the functions that count, before what calls them and behind what has to come first.
fn with_counting(text: &str, counting: &str) -> String {
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once(';').filter(|(first, _)| first.starts_with("enable ")) {
        rest = behind.trim_start();
    }
    format!("{}{counting}{rest}", &text[..text.len() - rest.len()])
}

/// The text with the ranges of the operands as the last parameter.
fn with_ranges(text: &str) -> Result<String, String> {
    let (before, rest) = text.split_once("struct Params {").ok_or("it has no parameters")?;
    let (fields, after) = rest.split_once('}').ok_or("its parameters don't end")?;
    let separator =
        if fields.trim_end().ends_with([',', '{']) || fields.trim().is_empty() { "" } else { "," };
    let vectors = OPERANDS / 2;
    Ok(format!(
        "{before}struct Params {{{fields}{separator} {PREFIX}_ranges: array<vec4<u32>, {vectors}>,}}{after}"
    ))
}

fn ranges_offset(module: &Module) -> Option<u32> {
    let (_, params) = module.types.iter().find(|(_, ty)| ty.name.as_deref() == Some("Params"))?;
    let TypeInner::Struct { members, .. } = &params.inner else { return None };
    members.last().map(|last| last.offset)
}

/// Adds the calls to every function of the kernel.
fn add_calls(module: &mut Module, info: &ModuleInfo) -> Result<(), String> {
    let before = module.clone();
    let named = |name: &str| {
        let name = format!("{PREFIX}_{name}");
        let found = before.functions.iter().find(|(_, function)| function.name.as_ref() == Some(&name));
        found.map(|(handle, _)| handle).ok_or(format!("there is no function {name}"))
    };
    for (handle, function) in module.functions.iter_mut() {
        if function.name.as_ref().is_some_and(|name| name.starts_with(PREFIX)) {
            continue;
        }
        let accesses = Accesses {
            module: &before,
            before: &before.functions[handle],
            info: &info[handle],
            named: &named,
        };
        accesses.add_calls(function)?;
    }
    for (i, entry) in module.entry_points.iter_mut().enumerate() {
        let (before, info) = (&before, info.get_entry_point(i));
        let accesses =
            Accesses { module: before, before: &before.entry_points[i].function, info, named: &named };
        accesses.add_calls(&mut entry.function)?;
        let add = Statement::Call { function: named("add")?, arguments: Vec::new(), result: None };
        add_at_ends(&mut entry.function.body, &add);
        if !matches!(entry.function.body.last(), Some(Statement::Return { .. })) {
            entry.function.body.push(add, Span::UNDEFINED);
        }
    }
    Ok(())
}

/// Adds a statement before each return.
fn add_at_ends(block: &mut Block, statement: &Statement) {
    let mut after = Block::with_capacity(block.len());
    for (mut each, span) in std::mem::take(block).span_into_iter() {
        match &mut each {
            Statement::Return { .. } => after.push(statement.clone(), Span::UNDEFINED),
            Statement::Block(inner) => add_at_ends(inner, statement),
            Statement::If { accept, reject, .. } => {
                add_at_ends(accept, statement);
                add_at_ends(reject, statement);
            }
            Statement::Switch { cases, .. } => {
                cases.iter_mut().for_each(|case| add_at_ends(&mut case.body, statement));
            }
            Statement::Loop { body, .. } => add_at_ends(body, statement),
            _ => {}
        }
        after.push(each, span);
    }
    *block = after;
}

/// An argument of a call: a value of the kernel's, or a number.
enum Argument {
    Value(Handle<Expression>),
    Number(u32),
}

/// A call of one of the functions that count.
struct Call {
    function: Handle<Function>,
    arguments: Vec<Argument>,
}

/// The accesses of a function.
struct Accesses<'a> {
    module: &'a Module,
    before: &'a Function,
    info: &'a FunctionInfo,
    named: &'a dyn Fn(&str) -> Result<Handle<Function>, String>,
}

impl Accesses<'_> {
    fn add_calls(&self, function: &mut Function) -> Result<(), String> {
        let mut calls = HashMap::new();
        for (handle, expression) in self.before.expressions.iter() {
            if let Some(call) = self.call(expression)? {
                calls.insert(handle, call);
            }
        }
        let mut body = std::mem::take(&mut function.body);
        self.add_to(&mut body, &calls, function)?;
        function.body = body;
        Ok(())
    }

    /// What counts an expression's access, if it is one that may lie outside.
    fn call(&self, expression: &Expression) -> Result<Option<Call>, String> {
        match *expression {
            Expression::Access { base, index } => {
                self.element(base, Argument::Value(index), "", Vec::new()).map(Some)
            }
            Expression::AccessIndex { base, index } if self.length(base) == Some(None) => {
                self.element(base, Argument::Number(index), "", Vec::new()).map(Some)
            }
            Expression::CooperativeLoad { columns, rows, ref data, .. } => {
                self.matrix(data, [columns as u32, rows as u32]).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The call for an element of `base`, of the functions of `kind` with what they take before the index.
    fn element(
        &self,
        base: Handle<Expression>,
        index: Argument,
        kind: &str,
        more: Vec<Argument>,
    ) -> Result<Call, String> {
        let place = self.place(base);
        let (name, mut arguments) = match self.length(base) {
            Some(None) if place < WORKGROUP => (format!("{kind}{place}"), Vec::new()),
            Some(Some(length)) => (format!("{kind}fixed_{place}"), vec![Argument::Number(length)]),
            _ => return Err(format!("an access of {:?}", self.inner(base))),
        };
        arguments.extend(more);
        arguments.push(index);
        Ok(Call { function: (self.named)(&name)?, arguments })
    }

    /// The call for the last element of a matrix in memory. Its first one is an access of its own.
    fn matrix(&self, data: &CooperativeData, [columns, rows]: [u32; 2]) -> Result<Call, String> {
        let (base, index) = match self.before.expressions[data.pointer] {
            Expression::Access { base, index } => (base, Argument::Value(index)),
            Expression::AccessIndex { base, index } => (base, Argument::Number(index)),
            ref other => return Err(format!("a matrix at {other:?}")),
        };
        let width = match *self.inner(data.pointer) {
            TypeInner::ValuePointer { size: Some(size), .. } => size as u32,
            TypeInner::Pointer { base, .. } => match self.module.types[base].inner {
                TypeInner::Vector { size, .. } => size as u32,
                _ => 1,
            },
            _ => 1,
        };
        let [lines, extent] = if data.row_major { [rows, columns] } else { [columns, rows] };
        let more = vec![
            Argument::Number(lines),
            Argument::Number(extent.div_ceil(width)),
            Argument::Value(data.stride),
        ];
        self.element(base, index, "matrix_", more)
    }

    fn inner(&self, expression: Handle<Expression>) -> &TypeInner {
        self.info[expression].ty.inner_with(&self.module.types)
    }

    /// Elements of what is accessed, `Some(None)` if only its binding says it.
    fn length(&self, base: Handle<Expression>) -> Option<Option<u32>> {
        let inner = match *self.inner(base) {
            TypeInner::Pointer { base, .. } => &self.module.types[base].inner,
            TypeInner::ValuePointer { size: Some(size), .. } => return Some(Some(size as u32)),
            ref value => value,
        };
        match *inner {
            TypeInner::Array { size: ArraySize::Constant(length), .. } => Some(Some(length.get())),
            TypeInner::Array { size: ArraySize::Dynamic, .. } => Some(None),
            TypeInner::Vector { size, .. } => Some(Some(size as u32)),
            TypeInner::Matrix { columns, .. } => Some(Some(columns as u32)),
            _ => None,
        }
    }

    /// Which of [`PLACES`] an expression is in.
    fn place(&self, mut expression: Handle<Expression>) -> u32 {
        loop {
            expression = match self.before.expressions[expression] {
                Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => base,
                Expression::GlobalVariable(global) => {
                    let global = &self.module.global_variables[global];
                    return match (global.space, global.binding) {
                        (AddressSpace::Storage { .. }, Some(at)) if at.group == 0 => at.binding,
                        (AddressSpace::WorkGroup, _) => WORKGROUP,
                        _ => INVOCATION,
                    };
                }
                _ => return INVOCATION,
            };
        }
    }

    /// Adds the calls behind the statements that make what they count.
    fn add_to(
        &self,
        block: &mut Block,
        calls: &HashMap<Handle<Expression>, Call>,
        function: &mut Function,
    ) -> Result<(), String> {
        let mut after = Block::with_capacity(block.len());
        for (mut statement, span) in std::mem::take(block).span_into_iter() {
            let mut due = Vec::new();
            let mut stored = None;
            match &mut statement {
                Statement::Emit(range) => due.extend(range.clone().filter_map(|made| calls.get(&made))),
                Statement::CooperativeStore { target, data } => {
                    let &TypeInner::CooperativeMatrix { columns, rows, .. } = self.inner(*target) else {
                        return Err("a matrix that is none is stored".to_owned());
                    };
                    due.push(&*stored.insert(self.matrix(data, [columns as u32, rows as u32])?));
                }
                Statement::Block(inner) => self.add_to(inner, calls, function)?,
                Statement::If { accept, reject, .. } => {
                    self.add_to(accept, calls, function)?;
                    self.add_to(reject, calls, function)?;
                }
                Statement::Switch { cases, .. } => {
                    cases.iter_mut().try_for_each(|case| self.add_to(&mut case.body, calls, function))?;
                }
                Statement::Loop { body, continuing, .. } => {
                    self.add_to(body, calls, function)?;
                    self.add_to(continuing, calls, function)?;
                }
                _ => {}
            }
            after.push(statement, span);
            due.into_iter().for_each(|call| self.push(call, &mut after, function));
        }
        *block = after;
        Ok(())
    }

    fn push(&self, call: &Call, block: &mut Block, function: &mut Function) {
        let expressions = &mut function.expressions;
        let mut arguments = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            arguments.push(match *argument {
                Argument::Number(number) => {
                    expressions.append(Expression::Literal(Literal::U32(number)), Span::UNDEFINED)
                }
                Argument::Value(value) if *self.inner(value) == TypeInner::Scalar(Scalar::U32) => value,
                Argument::Value(expr) => {
                    // One below zero becomes a very large one.
                    let kind = naga::ScalarKind::Uint;
                    let bits =
                        expressions.append(Expression::As { expr, kind, convert: None }, Span::UNDEFINED);
                    block.push(Statement::Emit(Range::new_from_bounds(bits, bits)), Span::UNDEFINED);
                    bits
                }
            });
        }
        block.push(Statement::Call { function: call.function, arguments, result: None }, Span::UNDEFINED);
    }
}
