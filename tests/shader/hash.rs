//! A hash of WGSL that knows no names.
//!
//! What is hashed is the module that naga makes of a text: it has neither comments nor formatting, and a use
//! is an index of what is used. A list of words wouldn't do: two functions have a variable of one name, and a
//! member may be called like a swizzle. naga replaces expressions of constants by their values, so another
//! expression of the same value isn't noticed. naga gets the declarations in the order of their first use, so that it
//! doesn't matter which file one stands in; those without a use aren't hashed.

use naga::compact::{KeepUnused, compact};
use sha2::{Digest as _, Sha256};

use crate::order::by_first_use;

/// How many bytes of the hash are written.
const WRITTEN: usize = 8;

/// A hash of texts in hexadecimal: as long as only names, comments, formatting and the order of declarations change, it
/// stays.
pub(crate) fn of_texts(texts: &[String]) -> Result<String, String> {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update(nameless(text)?);
    }
    Ok(hash.finalize()[..WRITTEN].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The module of a text, written out without names and places in the text.
fn nameless(text: &str) -> Result<String, String> {
    let ordered = by_first_use(text);
    let mut module =
        naga::front::wgsl::parse_str(&ordered).map_err(|error| error.emit_to_string(&ordered))?;
    // With a name, one whose value is all that was needed would stay.
    module.constants.iter_mut().for_each(|(_, constant)| constant.name = None);
    compact(&mut module, KeepUnused::No);
    // Nothing but names is written in quotes.
    let unnamed: String = format!("{module:?}").split('"').step_by(2).collect();
    let (mut bare, mut rest) = (String::new(), unnamed.as_str());
    while let Some((before, span)) = rest.split_once("Span {") {
        bare.push_str(before);
        rest = span.split_once('}').map_or("", |(_, after)| after);
    }
    Ok(bare + rest)
}

#[cfg(test)]
mod tests {
    use super::of_texts;

    const TEXT: &str = "
        struct Params { rows: u32, x: u32 }
        @group(0) @binding(0) var<storage, read_write> output: array<vec2<f32>>;
        var<immediate> params: Params;
        const SCALE = 2.0;

        fn scaled(i: u32) -> f32 { return SCALE * f32(i); }

        // The first rows.
        @compute @workgroup_size(64)
        fn main(@builtin(global_invocation_id) at: vec3<u32>) {
            let i = at.x;
            if i < params.rows && i < params.x { output[i].x = scaled(i) - 1.0; }
        }";

    /// The hash of the text with parts exchanged for others, wherever they stand.
    fn with(exchanged: &[(&str, &str)]) -> String {
        let exchange = |text: String, (from, to): &(&str, &str)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        };
        of_texts(&[exchanged.iter().fold(TEXT.to_owned(), exchange)]).unwrap()
    }

    #[test]
    fn names_comments_formatting_and_order_leave_it() {
        for exchanged in [
            &[("Params", "Shape")][..],
            &[("rows: u32", "columns: u32"), ("params.rows", "params.columns")],
            // A member only: the swizzle of the same name has to stay.
            &[("x: u32", "limit: u32"), ("params.x", "params.limit")],
            &[("output", "result")],
            &[("SCALE", "FACTOR")],
            &[("scaled", "doubled")],
            // In one function only.
            &[("(i: u32)", "(index: u32)"), ("f32(i)", "f32(index)")],
            &[("// The first rows.", "/* Some rows. */")],
            &[("{ return", "{\n    return")],
            // To the front, and what nobody uses.
            &[("const SCALE = 2.0;", ""), ("struct Params", "const SCALE = 2.0; struct Params")],
            &[("binding(0)", "binding(FIRST)"), ("const SCALE", "const FIRST = 0u; const SCALE")],
            &[("const SCALE", "fn unused() -> f32 { return scaled(1u); } const SCALE")],
        ] {
            assert_eq!(with(exchanged), with(&[]), "{exchanged:?}");
        }
    }

    #[test]
    fn all_else_changes_it() {
        for exchanged in [
            ("- 1.0", "+ 1.0"),
            ("- 1.0", "- 1.5"),
            ("= 2.0", "= 2.5"),
            ("i < params.rows", "i <= params.rows"),
            ("params.rows &&", "params.x &&"),
            ("output[i].x", "output[i].y"),
            ("workgroup_size(64)", "workgroup_size(32)"),
            ("binding(0)", "binding(1)"),
            ("scaled(i) ", "scaled(at.y) "),
            ("return SCALE *", "return -SCALE *"),
        ] {
            assert_ne!(with(&[exchanged]), with(&[]), "{exchanged:?}");
        }
    }
}
