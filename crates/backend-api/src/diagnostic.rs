//! What a compiler or driver said, with the place in the source text that it means.

use std::fmt;

/// What a compiler or driver said of a kernel.
///
/// Its text has the reason, and where the place is known the source line with carets below what is meant:
///
/// ```
/// use backend_api::{Diagnostic, DiagnosticKind, SourcePlace};
///
/// let place = SourcePlace::of("fn f() {\n  let x: u32 = 1.0;\n}", 15..16);
/// let said = Diagnostic::new("the type of `x` is u32, but its value is f32").at(place);
/// let text = said.of_kind(DiagnosticKind::Wgsl).to_string();
/// assert!(text.ends_with("2 |   let x: u32 = 1.0;\n  |       ^"), "{text}");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// What kind of fault it is.
    pub kind: DiagnosticKind,
    /// What is wrong, in a sentence.
    pub reason: String,
    /// Where, if the compiler tells.
    pub place: Option<Box<SourcePlace>>,
    /// What surrounds the fault, or helps against it, from the closest on.
    pub notes: Vec<String>,
}

/// What kind of fault a [`Diagnostic`] is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DiagnosticKind {
    /// The driver's or compiler's words, about anything.
    #[default]
    Driver,
    /// The text isn't WGSL: syntax, names, types, recursion.
    Wgsl,
    /// The entry point is missing, or has to be chosen.
    EntryPoint,
    /// A pipeline-overridable constant has no value, an unknown name, or a value that doesn't fit.
    Constant,
    /// A size passes a limit of the device.
    Limit,
    /// The device lacks a feature, or kernels can't have such a binding.
    Unsupported,
    /// A barrier or a subgroup operation may not be reached by every invocation.
    Uniformity,
}

impl DiagnosticKind {
    /// A word for it, such as `"limit"`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Wgsl => "wgsl",
            Self::EntryPoint => "entry-point",
            Self::Constant => "constant",
            Self::Limit => "limit",
            Self::Unsupported => "unsupported",
            Self::Uniformity => "uniformity",
        }
    }
}

/// A place in a source text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SourcePlace {
    /// The line, from 1.
    pub line: usize,
    /// The first character in the line, from 1.
    pub column: usize,
    /// Characters that are meant, at least 1, none beyond the line's end.
    pub length: usize,
    /// The line's text, without its end.
    pub text: String,
    /// The bytes of the source text that are meant.
    pub bytes: std::ops::Range<usize>,
}

impl SourcePlace {
    /// The place of some bytes of a text. What lies outside of the text is taken for its end.
    #[must_use]
    pub fn of(source: &str, bytes: std::ops::Range<usize>) -> Self {
        let boundary = |at: usize| (0..=at.min(source.len())).rev().find(|&at| source.is_char_boundary(at));
        let start = boundary(bytes.start).unwrap_or(0);
        let end = boundary(bytes.end).unwrap_or(0).max(start);
        let (before, after) = source.split_at(start);
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line_end = after.find('\n').map_or(source.len(), |at| start + at);
        let characters = |range| source.get(range).map_or(0, |text: &str| text.chars().count());
        Self {
            line: before.matches('\n').count() + 1,
            column: characters(line_start..start) + 1,
            length: characters(start..end.min(line_end)).max(1),
            text: source.get(line_start..line_end).unwrap_or_default().trim_end_matches('\r').to_owned(),
            bytes: start..end,
        }
    }
}

impl Diagnostic {
    /// A diagnostic without a place.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self { kind: DiagnosticKind::Driver, reason: reason.into(), place: None, notes: Vec::new() }
    }

    /// Sets the kind of the fault.
    #[must_use]
    pub fn of_kind(mut self, kind: DiagnosticKind) -> Self {
        self.kind = kind;
        self
    }

    /// Sets the place in the source text.
    #[must_use]
    pub fn at(mut self, place: SourcePlace) -> Self {
        self.place = Some(Box::new(place));
        self
    }

    /// Adds a note after those that are there.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        let mut margin = 0;
        if let Some(place) = &self.place {
            let SourcePlace { line, column, length, text, .. } = &**place;
            margin = line.to_string().len();
            // Tabs stay tabs, so that the carets are below what they mean.
            let indent: String = text
                .chars()
                .take(column.saturating_sub(1))
                .map(|c| if c == '\t' { c } else { ' ' })
                .collect();
            let carets = "^".repeat(*length);
            write!(f, "\n{:margin$}--> line {line}, column {column}\n{:margin$} |", "", "")?;
            write!(f, "\n{line} | {text}\n{:margin$} | {indent}{carets}", "")?;
        }
        for note in &self.notes {
            write!(f, "\n{:margin$} = {note}", "")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostic {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_in_lines_and_characters() {
        let source = "let α = 1;\r\n\tlet β = γ;\n";
        let at = source.find('γ').unwrap();
        let place = SourcePlace::of(source, at..at + 2);
        assert_eq!((place.line, place.column, place.length), (2, 10, 1));
        assert_eq!(place.text, "\tlet β = γ;");
        let text = Diagnostic::new("no γ").at(place).with_note("define it").to_string();
        assert_eq!(
            text,
            "no γ\n --> line 2, column 10\n  |\n2 | \tlet β = γ;\n  | \t        ^\n  = define it"
        );
    }

    #[test]
    fn a_place_may_be_anywhere() {
        for (source, range) in [("", 0..0), ("", 5..9), ("αβ", 1..3), ("a\nb", 1..3), ("a", 1..1)] {
            let place = SourcePlace::of(source, range);
            assert!(place.length >= 1 && place.column >= 1 && place.line >= 1);
            _ = Diagnostic::new("anywhere").at(place).to_string();
        }
        let place = SourcePlace::of("first\nsecond", 3..9);
        assert_eq!((place.line, place.column, place.length), (1, 4, 2), "no caret is beyond the line");
    }
}
