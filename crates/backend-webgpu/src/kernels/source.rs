//! The kernels: one WGSL file each, and what has to be known of it to launch it.
//!
//! Bindings and parameters are declared in Rust alone, where the launcher gives them: a composed text ends with the
//! bindings and with `struct Params`, made of the fields. The suite `shaders` compares both with what naga makes of the text.

use std::hash::{Hash, Hasher};

use super::{Field, Target, Values};

/// Writes the unrolled part of a kernel's text from its constants.
pub type Unrolled = fn(&Values, Target) -> String;

/// The unrolled part of a kernel that no browser can run, and no page loads.
pub(crate) const fn native(unrolled: Unrolled) -> Option<Unrolled> {
    if cfg!(target_family = "wasm") { None } else { Some(unrolled) }
}

/// A WGSL file with a `main`, or with what the `main` of a helper file calls.
#[derive(Debug)]
pub struct KernelSource {
    /// Path in shaders/ without the extension.
    pub name: &'static str,
    /// The file's text.
    pub text: &'static str,
    /// Helper files that it calls; what these need is added to the text by itself.
    pub libs: &'static [Lib],
    /// Names of its free types, in the order in which a variant gives them.
    pub types: &'static [&'static str],
    /// Names of its free `u32` constants, which are in capitals in the text, in the order in which a variant gives them.
    pub constants: &'static [&'static str],
    /// Read-only storage bindings 0, 1, …, each with its element type, such as `x: vec4<T>`. One without a type is
    /// declared by a helper file, which knows it.
    pub reads: &'static [&'static str],
    /// Read-write storage bindings, numbered on from the read-only ones.
    pub writes: &'static [&'static str],
    /// Fields of its `Params`, in order; without any, the file has a `Params` of its own.
    pub params: &'static [Field],
    /// Writes the part of the text that WGSL has no short form for, from the values of `constants`: the step
    /// of a product, which is only fast when it is unrolled in the text.
    pub unrolled: Option<Unrolled>,
    /// Whether it uses cooperative matrices.
    pub cooperative: bool,
    /// Whether it exchanges values within subgroups.
    pub subgroups: bool,
    /// Whether it makes some of what it writes of what another binding that it writes has.
    pub mixes_outputs: bool,
}

/// A WGSL file of helper functions, appended to the kernels that name it.
#[derive(Clone, Copy, Debug)]
pub struct Lib {
    /// Path in shaders/ without the extension.
    pub name: &'static str,
    /// The file's text.
    pub text: &'static str,
    /// Helper files that this one calls, whichever kernel it is appended to.
    pub needs: &'static [Self],
    /// Whether it has barriers after which all workgroups of a device see what was written. No browser has them, so that
    /// pages are without the text.
    pub device_scope_barriers: bool,
}

impl Lib {
    /// Adds this file to a list, once, after all that it needs.
    pub(super) fn add_to(self, list: &mut Vec<Self>) {
        if list.contains(&self) {
            return;
        }
        for need in self.needs {
            need.add_to(list);
        }
        list.push(self);
    }
}

impl PartialEq for Lib {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Lib {}

impl Hash for Lib {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The text of a file of shaders/. A page gets it without comments and needless spaces, as it has to load every
/// byte; the lines stay the file's own.
#[cfg(not(target_family = "wasm"))]
macro_rules! shader {
    ($name:expr) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/", $name, ".wgsl"))
    };
}
#[cfg(target_family = "wasm")]
macro_rules! shader {
    ($name:expr) => {{
        const TEXT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/", $name, ".wgsl"));
        const BARE: [u8; $crate::kernels::bare_length(TEXT)] = $crate::kernels::bare(TEXT);
        const BARE_TEXT: &str = match std::str::from_utf8(&BARE) {
            Ok(text) => text,
            Err(_) => TEXT,
        };
        BARE_TEXT
    }};
}
pub(crate) use shader;

/// Bytes of what [`bare`] makes of a text.
#[cfg(any(test, target_family = "wasm"))]
pub(crate) const fn bare_length(text: &str) -> usize {
    strip(text.as_bytes(), &mut [])
}

/// A WGSL text without comments and needless spaces.
#[cfg(any(test, target_family = "wasm"))]
pub(crate) const fn bare<const LENGTH: usize>(text: &str) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    strip(text.as_bytes(), &mut bytes);
    bytes
}

/// Writes what remains of a text to the beginning of `to`, as far as that has room; how long it is.
#[cfg(any(test, target_family = "wasm"))]
const fn strip(text: &[u8], to: &mut [u8]) -> usize {
    let (mut i, mut length) = (0, 0);
    let (mut before, mut comment) = (b'\n', false);
    while i < text.len() {
        let next = if i + 1 < text.len() { text[i + 1] } else { b'\n' };
        comment = text[i] != b'\n' && (comment || (text[i] == b'/' && next == b'/'));
        let needless = text[i] == b' ' && is_needless_space(before, next);
        if !comment && !needless {
            if length < to.len() {
                to[length] = text[i];
            }
            length += 1;
            before = text[i];
        }
        i += 1;
    }
    length
}

/// Whether a space between these two bytes separates no tokens. Without the one between `>` and `=`, the end of a
/// template list and an assignment would become a comparison, and without the one between `/` and `*`, a division by
/// what a pointer points to a comment. Those beside `-`, `&` and `<` stay, too.
#[cfg(any(test, target_family = "wasm"))]
const fn is_needless_space(before: u8, next: u8) -> bool {
    const fn stands_alone(byte: u8) -> bool {
        matches!(byte, b'\n' | b' ' | b',' | b';' | b':' | b'(' | b')' | b'{' | b'}' | b'=' | b'+' | b'*')
    }
    (stands_alone(before) || stands_alone(next)) && !matches!((before, next), (b'>', b'=') | (b'/', b'*'))
}

/// A kernel of shaders/, with the constants that [`constants!`](super::constants) declares. One that is `native` needs what no browser has: a page needn't load its text.
macro_rules! kernel {
    (native $name:literal, libs: $libs:tt, $($rest:tt)*) => {
        if cfg!(target_family = "wasm") {
            $crate::kernels::KernelSource { text: "", ..$crate::kernels::kernel!($name, libs: [], $($rest)*) }
        } else {
            $crate::kernels::kernel!($name, libs: $libs, $($rest)*)
        }
    };
    ($name:literal, libs: $libs:tt, types: $types:expr, constants: [$($constant:literal),*], $($rest:tt)*) => {
        $crate::kernels::kernel!(@ $name, $libs, $types, &[$($constant),*], $($rest)*)
    };
    ($name:literal, libs: $libs:tt, types: $types:expr, constants: $constants:ty, $($rest:tt)*) => {
        $crate::kernels::kernel!(
            @ $name, $libs, $types, <$constants as $crate::kernels::Constant>::NAMES, $($rest)*
        )
    };
    (@ $name:literal, [$($lib:ident),* $(,)?], $types:expr, $constants:expr,
     params: $params:ty, reads: $reads:expr, writes: $writes:expr $(,)?) => {
        $crate::kernels::KernelSource {
            name: $name,
            text: $crate::kernels::shader!($name),
            libs: &[$($crate::kernels::libs::$lib),*],
            types: &$types,
            constants: $constants,
            reads: &$reads,
            writes: &$writes,
            params: <$params as $crate::kernels::FieldType>::FIELDS,
            unrolled: None,
            cooperative: false,
            subgroups: false,
            mixes_outputs: false,
        }
    };
}
pub(crate) use kernel;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_remains_is_code_on_its_own_lines() {
        const TEXT: &str =
            "// All.\nfn f() -> u32 {\n  a = b / c; // d\n\n    var e: vec2<f32> = g(h, - -i) + j / *k;\n}\n";
        const BARE: [u8; bare_length(TEXT)] = bare(TEXT);
        assert_eq!(
            str::from_utf8(&BARE),
            Ok("\nfn f()-> u32{\na=b / c;\n\nvar e:vec2<f32> =g(h,- -i)+j / *k;\n}\n"),
        );
    }
}
