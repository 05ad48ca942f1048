//! Which control flow every invocation of a workgroup takes together.
//!
//! A value is *uniform* when all invocations of a workgroup certainly have the same. A local variable is not
//! when a non-uniform value, or any value in non-uniform flow, is ever stored in it. Flow is not after a
//! branch on a non-uniform value until the branch ends; if the branch returns, until the function ends; if it
//! breaks or continues, in the whole loop, because the loop comes back. That is the analysis of the WGSL
//! specification ("Uniformity"), coarser only in that a variable has one state for the whole function.
//! Functions are looked at again for each call, with the uniformity of its arguments.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use naga::{
    Block, EntryPoint, Expression, Function, GatherMode, Handle, LocalVariable, Module, Span, Statement,
};

use super::values::{Argument, is_uniform_binding};
use super::{Finding, NonUniform};

/// Every barrier and subgroup operation of an entry point's calls that some invocations may not reach.
#[must_use]
pub fn check(module: &Module, entry: &EntryPoint) -> Vec<Finding> {
    let arguments = entry.function.arguments.iter().map(|argument| Argument {
        varies: !argument.binding.as_ref().is_some_and(is_uniform_binding),
        pointee_varies: false,
    });
    let mut found = Found::new();
    let calls = Calls::default();
    Frame::new(module, &calls, &entry.function, arguments.collect(), false).run(&mut found);
    found.append(&mut calls.found.borrow_mut());
    let mut seen = HashSet::new();
    found.retain(|finding| seen.insert((finding.kind, finding.span.to_range())));
    found
}

type Found = Vec<Finding>;

/// What a caller learns from a call.
#[derive(Clone)]
struct Outcome {
    result_varies: bool,
    arguments: Vec<Argument>,
}

/// The calls that were looked at. A function that is called again in the same way is not looked at again, so
/// that a chain of functions which each call the next one twice costs no more than its length.
#[derive(Default)]
struct Calls {
    outcomes: RefCell<HashMap<Call, Outcome>>,
    /// What is in the functions called. What is known of a call only grows, so this stays true.
    found: RefCell<Found>,
}

/// A function, its arguments, and whether some invocations may not reach the call.
type Call = (Handle<Function>, Vec<Argument>, bool);

/// One call of a function.
pub(super) struct Frame<'a> {
    pub(super) module: &'a Module,
    calls: &'a Calls,
    pub(super) function: &'a Function,
    pub(super) arguments: Vec<Argument>,
    called_divergently: bool,
    pub(super) varying_locals: HashSet<Handle<LocalVariable>>,
    pub(super) varying_results: HashSet<Handle<Expression>>,
    result_varies: bool,
    /// The loops in the order in which a pass meets them: whether some invocations may leave an iteration
    /// alone.
    broken_loops: Vec<bool>,
    /// Whether the last pass learned something.
    pub(super) changed: bool,
    pub(super) memo: HashMap<Handle<Expression>, bool>,
}

/// Where a pass over the statements is.
#[derive(Clone, Debug, Default)]
struct Place {
    /// Loops met so far.
    next_loop: usize,
    /// The enclosing loops, as indices into `broken_loops`.
    loops: Vec<usize>,
    /// For each enclosing switch or loop: whether some invocations have left it.
    left: Vec<Leave>,
    /// Whether some invocations have returned.
    returned: bool,
}

#[derive(Clone, Copy, Debug)]
struct Leave {
    is_loop: bool,
    left: bool,
}

impl<'a> Frame<'a> {
    fn new(
        module: &'a Module,
        calls: &'a Calls,
        function: &'a Function,
        arguments: Vec<Argument>,
        called_divergently: bool,
    ) -> Self {
        Self {
            module,
            calls,
            function,
            arguments,
            called_divergently,
            varying_locals: HashSet::new(),
            varying_results: HashSet::new(),
            result_varies: false,
            broken_loops: Vec::new(),
            changed: false,
            memo: HashMap::new(),
        }
    }

    /// Passes over the body until nothing new is learned, then reports what the last pass finds.
    fn run(mut self, found: &mut Found) -> Outcome {
        loop {
            let mut pass = Found::new();
            self.changed = false;
            self.memo.clear();
            self.block(&self.function.body, false, &mut Place::default(), &mut pass);
            if !self.changed {
                found.extend(pass);
                return Outcome { result_varies: self.result_varies, arguments: self.arguments };
            }
        }
    }

    /// `branched` tells whether an enclosing branch was taken by some invocations only.
    fn block(&mut self, block: &Block, branched: bool, place: &mut Place, found: &mut Found) {
        for (statement, &span) in block.span_iter() {
            let diverged = self.called_divergently
                || branched
                || place.returned
                || place.left.iter().any(|leave| leave.left);
            self.statement(statement, span, diverged, place, found);
        }
    }

    fn statement(
        &mut self,
        statement: &Statement,
        span: Span,
        diverged: bool,
        place: &mut Place,
        found: &mut Found,
    ) {
        let mut require_uniform = |kind, what| {
            if diverged {
                found.push(Finding { kind, what, span });
            }
        };
        match statement {
            Statement::Block(block) => self.block(block, diverged, place, found),
            Statement::If { condition, accept, reject } => {
                let branched = diverged || self.varies(*condition);
                self.block(accept, branched, place, found);
                self.block(reject, branched, place, found);
            }
            Statement::Switch { selector, cases } => {
                let branched = diverged || self.varies(*selector);
                place.left.push(Leave { is_loop: false, left: false });
                for case in cases {
                    self.block(&case.body, branched, place, found);
                }
                place.left.pop();
            }
            Statement::Loop { body, continuing, break_if } => {
                self.repeat([body, continuing], *break_if, diverged, place, found);
            }
            Statement::Break if diverged => {
                let leaves_loop = place.left.last().is_some_and(|leave| leave.is_loop);
                if let Some(leave) = place.left.last_mut() {
                    leave.left = true;
                }
                if leaves_loop {
                    self.break_loop(place);
                }
            }
            Statement::Continue if diverged => {
                if let Some(leave) = place.left.iter_mut().rev().find(|leave| leave.is_loop) {
                    leave.left = true;
                }
                self.break_loop(place);
            }
            Statement::Return { value } => {
                let varies = diverged || value.is_some_and(|value| self.varies(value));
                self.changed |= varies && !self.result_varies;
                self.result_varies |= varies;
                if diverged {
                    place.returned = true;
                    for index in place.loops.clone() {
                        self.mark_loop(index);
                    }
                }
            }
            Statement::Kill => place.returned = true,
            Statement::ControlBarrier(_) => require_uniform(NonUniform::Barrier, "a barrier"),
            Statement::WorkGroupUniformLoad { pointer, .. } => {
                require_uniform(NonUniform::Barrier, "workgroupUniformLoad");
                if self.varies(*pointer) {
                    let what = "the pointer of workgroupUniformLoad";
                    found.push(Finding { kind: NonUniform::Pointer, what, span });
                }
            }
            Statement::SubgroupBallot { .. } => {
                require_uniform(NonUniform::Subgroup, "subgroupBallot");
            }
            Statement::SubgroupCollectiveOperation { .. } => {
                require_uniform(NonUniform::Subgroup, "a subgroup reduction");
            }
            Statement::SubgroupGather { mode, .. } => {
                let quad = matches!(mode, GatherMode::QuadBroadcast(_) | GatherMode::QuadSwap(_));
                let what = if quad { "a quad operation" } else { "a subgroup shuffle or broadcast" };
                require_uniform(NonUniform::Subgroup, what);
            }
            Statement::Store { pointer, value } => {
                let varies = diverged || self.varies(*value) || self.varies(*pointer);
                self.store(*pointer, varies);
            }
            Statement::Call { function, arguments, result } => {
                self.call(*function, arguments, *result, diverged);
            }
            _ => {}
        }
    }

    fn repeat(
        &mut self,
        blocks: [&Block; 2],
        break_if: Option<Handle<Expression>>,
        diverged: bool,
        place: &mut Place,
        found: &mut Found,
    ) {
        let index = place.next_loop;
        place.next_loop += 1;
        if self.broken_loops.len() <= index {
            self.broken_loops.resize(index + 1, false);
        }
        place.loops.push(index);
        place.left.push(Leave { is_loop: true, left: self.broken_loops[index] });
        for block in blocks {
            self.block(block, diverged, place, found);
        }
        if break_if.is_some_and(|condition| self.varies(condition)) {
            self.mark_loop(index);
        }
        place.left.pop();
        place.loops.pop();
    }

    fn break_loop(&mut self, place: &Place) {
        if let Some(&index) = place.loops.last() {
            self.mark_loop(index);
        }
    }

    fn mark_loop(&mut self, index: usize) {
        self.changed |= !self.broken_loops[index];
        self.broken_loops[index] = true;
    }

    fn call(
        &mut self,
        function: Handle<Function>,
        arguments: &[Handle<Expression>],
        result: Option<Handle<Expression>>,
        diverged: bool,
    ) {
        let given = arguments.iter().map(|&argument| Argument {
            varies: self.varies(argument),
            pointee_varies: self.root(argument).is_some_and(|root| self.memory_varies(root)),
        });
        let key = (function, given.collect::<Vec<_>>(), diverged);
        let known = self.calls.outcomes.borrow().get(&key).cloned();
        let outcome = known.unwrap_or_else(|| {
            let callee = &self.module.functions[function];
            let mut found = Found::new();
            let outcome =
                Frame::new(self.module, self.calls, callee, key.1.clone(), diverged).run(&mut found);
            self.calls.found.borrow_mut().append(&mut found);
            self.calls.outcomes.borrow_mut().insert(key, outcome.clone());
            outcome
        });
        for (&argument, after) in arguments.iter().zip(&outcome.arguments) {
            self.store(argument, after.pointee_varies);
        }
        if let Some(result) = result.filter(|_| outcome.result_varies) {
            self.changed |= self.varying_results.insert(result);
        }
    }
}
