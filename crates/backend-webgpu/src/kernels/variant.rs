//! A kernel with its free names bound.

use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};

use backend_api::{BinaryOp, CompareOp, DType, ScatterOp, UnaryOp};

use super::source::{KernelSource, Lib};
use super::{Constant, Target, Values, WorkgroupSize, elements};

/// The most types that a kernel leaves free.
pub(crate) const MAX_TYPES: usize = 4;

/// A function that an element-wise kernel leaves free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Function {
    /// `apply(x)`, of lib/unary or lib/integer.
    Unary(UnaryOp),
    /// `apply(a, b)`, of lib/binary or lib/integer.
    Binary(BinaryOp),
    /// `apply(a, b)`, of lib/order or an operator.
    Compare(CompareOp),
    /// `apply(c, a, b)`: one of two.
    Choose,
    /// `apply(x)`: x between two parameters.
    Clamp,
    /// `apply(x)`: x times a parameter, plus another.
    Affine,
    /// `apply(x)` from the first type to the second, of lib/convert and lib/convert_f16.
    Convert,
    /// `combine(before, arriving)` of two elements of a scatter.
    Combine(ScatterOp),
    /// None: elements are moved as they are.
    Move,
    /// `write(block, numbers)`: four elements to the output.
    Write,
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unary(op) => op.name(),
            Self::Binary(op) => op.name(),
            Self::Compare(op) => op.name(),
            Self::Choose => "choose",
            Self::Clamp => "clamp",
            Self::Affine => "affine",
            Self::Convert => "convert",
            Self::Combine(op) => op.name(),
            Self::Move => "move",
            Self::Write => "write",
        })
    }
}

/// One specialisation of a kernel: the key of the pipeline cache, and all that its text depends on.
#[derive(Clone, Copy)]
pub struct Variant {
    pub(crate) source: &'static KernelSource,
    types: [Option<DType>; MAX_TYPES],
    function: Option<Function>,
    constants: Values,
    /// Helper files besides the kernel's own.
    libs: &'static [Lib],
    rolled_loops: bool,
    /// The workgroup where it may be larger than every device has room for: follows from the constants.
    pub(super) workgroup: WorkgroupSize,
}

impl Variant {
    /// Binds the kernel's types, in the order in which its source names them, and its constants.
    pub(crate) fn new<const T: usize, C: Constant>(
        source: &'static KernelSource,
        types: [DType; T],
        constants: C,
    ) -> Self {
        const { assert!(T <= MAX_TYPES, "more free types than a variant holds") };
        debug_assert_eq!(source.types.len(), T, "{}", source.name);
        let is_of_source = if C::NAMES.is_empty() {
            size_of::<C>() == size_of::<u32>() * source.constants.len()
        } else {
            C::NAMES == source.constants
        };
        debug_assert!(is_of_source, "{} has the constants {:?}", source.name, source.constants);
        let mut bound = Self {
            source,
            types: [None; MAX_TYPES],
            function: None,
            constants: constants.values(),
            libs: &[],
            rolled_loops: false,
            workgroup: WorkgroupSize::PORTABLE,
        };
        for (slot, dtype) in bound.types.iter_mut().zip(types) {
            *slot = Some(dtype);
        }
        bound
    }

    /// Binds the function that the kernel leaves free.
    #[must_use]
    pub(crate) fn with_function(mut self, function: Function) -> Self {
        self.function = Some(function);
        self
    }

    /// Adds helper files that define types and functions which the kernel leaves free.
    #[must_use]
    pub(crate) fn with_libs(mut self, libs: &'static [Lib]) -> Self {
        self.libs = libs;
        self
    }

    /// Asks the driver not to unroll the loops, where it can be asked. What is already unrolled in the text
    /// is faster so on tensor cores, and compiles in a fraction of the time.
    #[must_use]
    pub(crate) fn with_rolled_loops(mut self) -> Self {
        self.rolled_loops = true;
        self
    }

    /// States what a workgroup takes, where that may be more than every device has room for.
    #[must_use]
    pub(crate) fn with_workgroup(mut self, invocations: usize, bytes: usize) -> Self {
        self.workgroup = WorkgroupSize { invocations: invocations as u32, bytes: bytes as u32 };
        self
    }

    /// Whether the driver is asked not to unroll the loops.
    pub(super) fn has_rolled_loops(&self) -> bool {
        self.rolled_loops
    }

    /// Every helper file: the kernel's own, the variant's and all that these need, each after what it needs.
    #[must_use]
    pub fn libs(&self) -> Vec<Lib> {
        let mut all = Vec::new();
        for lib in self.source.libs.iter().chain(self.libs) {
            lib.add_to(&mut all);
        }
        all
    }

    /// The kernel's name.
    #[must_use]
    pub fn kernel(&self) -> &'static str {
        self.source.name
    }

    /// What the kernel's file says of itself in Rust.
    #[cfg(feature = "test-hooks")]
    #[must_use]
    pub fn source(&self) -> &'static KernelSource {
        self.source
    }

    /// Whether one of the free types is bound to this one.
    pub(super) fn has_type(&self, dtype: DType) -> bool {
        self.types.contains(&Some(dtype))
    }

    /// The free names and what they are bound to, as WGSL declarations.
    pub(crate) fn tail(&self, target: Target) -> String {
        let mut tail = String::new();
        for (name, dtype) in self.source.types.iter().zip(self.types.iter().flatten()) {
            _ = writeln!(tail, "alias {name} = {dtype};");
        }
        for (name, value) in self.source.constants.iter().zip(self.constants) {
            _ = writeln!(tail, "const {}: u32 = {value}u;", name.to_ascii_uppercase());
        }
        if let Some(function) = self.function {
            tail.push_str(&elements::declarations(self, function));
        }
        if let Some(unrolled) = self.source.unrolled {
            tail.push_str(&unrolled(&self.constants, target));
        }
        tail
    }

    /// The element type that the free name of this index is bound to.
    pub(super) fn dtype(&self, index: usize) -> DType {
        self.types.get(index).copied().flatten().unwrap_or(DType::U32)
    }

    /// The value that a free constant is bound to; 0 for one that the kernel doesn't have.
    pub(super) fn constant(&self, name: &str) -> u32 {
        let at = self.source.constants.iter().position(|constant| constant.eq_ignore_ascii_case(name));
        at.map_or(0, |at| self.constants[at])
    }
}

/// The specialisation without the kernel's name, such as `f16 TILE_M=64`.
impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = self.types.iter().flatten().map(ToString::to_string);
        let function = self.function.map(|function| function.to_string());
        let constants = self.source.constants.iter().zip(self.constants);
        let constants = constants.map(|(name, value)| format!("{}={value}", name.to_ascii_uppercase()));
        let libs = self.libs.iter().map(|lib| lib.name.trim_start_matches("lib/").to_owned());
        let rolled = self.rolled_loops.then(|| "rolled".to_owned());
        let parts = types.chain(function).chain(constants).chain(libs).chain(rolled);
        f.write_str(&parts.collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Debug for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({self})", self.source.name)
    }
}

impl PartialEq for Variant {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.source, other.source)
            && self.types == other.types
            && self.function == other.function
            && self.constants == other.constants
            && self.libs == other.libs
            && self.rolled_loops == other.rolled_loops
    }
}

impl Eq for Variant {}

impl Hash for Variant {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::from_ref(self.source).hash(state);
        self.types.hash(state);
        self.function.hash(state);
        self.constants.hash(state);
        self.libs.hash(state);
        self.rolled_loops.hash(state);
    }
}
