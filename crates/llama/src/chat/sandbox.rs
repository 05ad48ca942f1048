//! Bounds of what a template from a file may take.
//!
//! The engine's fuel pays for steps and for the bytes that its own filters write, but not for methods of Python's
//! strings, which multiply lengths; nor for concatenated lists, so that a hostile template can still take much memory.

use std::fmt::{self, Write as _};

use minijinja::{Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;

/// The longest template, in bytes: several times the longest of any model.
const MAX_TEMPLATE: usize = 64 << 10;

/// The longest text that a method makes, in bytes.
const MAX_TEXT: usize = 16 << 20;

/// The most parts that a method cuts a text into.
const MAX_PARTS: usize = 1 << 20;

/// A stack for templates: the parser and the compiler go down a level for each operator of a chain and for each branch
/// of an `elif`, of which [`MAX_TEMPLATE`] bytes hold some 30,000.
#[cfg(not(target_family = "wasm"))]
const STACK: usize = 256 << 20;

fn refused(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, text.into())
}

/// Refuses a template that is too long.
pub(super) fn check(template: &str) -> Result<(), Error> {
    if template.len() <= MAX_TEMPLATE {
        return Ok(());
    }
    Err(refused(format!("it has {} bytes, expected at most {MAX_TEMPLATE}", template.len())))
}

/// What `render` makes on a stack that is large enough for any template that isn't too long. A page has one stack, and a
/// template that exhausts it stops the module.
#[cfg(not(target_family = "wasm"))]
pub(super) fn on_a_large_stack<T: Send>(
    render: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("chat template".to_owned()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, render);
        let thread = thread.map_err(|error| refused("there is no thread for it").with_source(error))?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(target_family = "wasm")]
pub(super) fn on_a_large_stack<T>(render: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    render()
}

/// The methods of Python's types, where they don't make too much.
pub(super) fn method(
    state: &mut State<'_, '_>,
    value: &Value,
    name: &str,
    args: &[Value],
) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        let is_bounded = match name {
            "replace" => replaced(text, args) <= MAX_TEXT,
            "join" => joined(text, args).is_ok(),
            "split" | "splitlines" => text.len() <= MAX_TEXT && parts(text, name, args) <= MAX_PARTS,
            // Lengths stay, or the engine has bounds.
            _ => true,
        };
        if !is_bounded {
            return Err(refused(format!("{name} would make too much")));
        }
    }
    unknown_method_callback(state, value, name, args)
}

/// How long a text is at most with all occurrences of the first argument replaced by the second.
fn replaced(text: &str, args: &[Value]) -> usize {
    let [old, new] = [0, 1].map(|place| args.get(place).and_then(Value::as_str).unwrap_or_default());
    text.matches(old).count().saturating_mul(new.len()).saturating_add(text.len())
}

/// Fails if the elements of the first argument, with `text` between them, are too long.
fn joined(text: &str, args: &[Value]) -> fmt::Result {
    let mut room = Room(MAX_TEXT);
    // What can't be iterated over is the method's to refuse.
    let Some(Ok(values)) = args.first().map(Value::try_iter) else { return Ok(()) };
    for value in values {
        write!(room, "{text}{value}")?;
    }
    Ok(())
}

fn parts(text: &str, name: &str, args: &[Value]) -> usize {
    match args.first().and_then(Value::as_str).filter(|_| name == "split") {
        Some(between) => text.matches(between).count(),
        None => text.split_ascii_whitespace().count(),
    }
}

/// Counts the bytes that are written, up to so many.
struct Room(usize);

impl fmt::Write for Room {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.checked_sub(text.len()).ok_or(fmt::Error)?;
        Ok(())
    }
}
