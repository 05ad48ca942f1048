//! A place in the bytes of a file, which only moves over what is there.

use std::fmt;

use thiserror::Error;

/// Why a file isn't GGUF, and at which byte.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct GgufError {
    /// Bytes from the file's start.
    pub offset: usize,
    /// What is wrong there.
    pub kind: GgufErrorKind,
}

/// A download that stopped gives such a file.
const CUT: &str = "it is cut short, or damaged; is the download complete?";

impl fmt::Display for GgufError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, kind } = self;
        match kind {
            GgufErrorKind::Truncated { have: 0, .. } if *offset == 0 => f.write_str("the file is empty"),
            GgufErrorKind::Truncated { need, have } => {
                let end = offset.saturating_add(*have);
                write!(
                    f,
                    "the file ends at byte {end}, but its header needs {need} bytes at byte {offset}: {CUT}"
                )
            }
            // The offset is that of the tensor's description, which is whole.
            GgufErrorKind::TensorEnd { .. } => kind.fmt(f),
            _ => write!(f, "at byte {offset}: {kind}"),
        }
    }
}

/// What can be wrong with a GGUF file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GgufErrorKind {
    /// The first four bytes are not GGUF's.
    #[error("this is not a GGUF file")]
    Magic,
    /// Another version than 2 and 3; a big-endian file has a version of this kind.
    #[error("version {0} is neither 2 nor 3 (or the file is big-endian)")]
    Version(u32),
    /// The file ends too early.
    #[error("{need} bytes are needed, and {have} are left")]
    Truncated {
        /// Bytes asked for.
        need: u64,
        /// Bytes left.
        have: usize,
    },
    /// A header that is longer than any is read.
    #[error("the header goes on behind {most} bytes, which is more than is read of one")]
    Header {
        /// Bytes that are read.
        most: u64,
    },
    /// A tensor whose numbers end beyond the file.
    #[error("the file ends at byte {size}, but the tensor {name:?} needs bytes up to {end}: {CUT}")]
    TensorEnd {
        /// Its name.
        name: String,
        /// Where its numbers should end, in bytes from the file's start.
        end: u64,
        /// Bytes of the file.
        size: u64,
    },
    /// More elements than the rest of the file could hold.
    #[error("the file is too short for {count} {what}: {CUT}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// How many there are said to be.
        count: u64,
    },
    /// More elements in all arrays of the metadata than are read.
    #[error("arrays have more than {most} elements")]
    Elements {
        /// How many are read.
        most: usize,
    },
    /// Text that isn't UTF-8.
    #[error("a text isn't UTF-8")]
    Utf8,
    /// A type of value that GGUF doesn't have, or an array of arrays.
    #[error("a value has the type {0}, which can't be read")]
    ValueType(u32),
    /// A truth value other than 0 and 1.
    #[error("a truth value is {0}")]
    Bool(u8),
    /// More than four dimensions, or extents whose product is no size.
    #[error("a tensor has the shape {0:?}")]
    Shape(Vec<u64>),
    /// Rows that are no whole number of blocks.
    #[error("rows of {columns} numbers aren't whole blocks of {block}")]
    Blocks {
        /// Numbers in a row.
        columns: usize,
        /// Numbers in a block.
        block: usize,
    },
    /// An alignment that is no power of two.
    #[error("tensors can't be aligned to {0} bytes")]
    Alignment(u64),
    /// A tensor whose numbers begin among those of another one.
    #[error("the tensor {0:?} begins within another one")]
    Overlap(String),
    /// A key or a tensor that is there twice.
    #[error("{0:?} is there twice")]
    Duplicate(String),
}

/// Reads little-endian numbers and texts one after the other.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    pub(super) const fn offset(&self) -> usize {
        self.offset
    }

    pub(super) const fn error(&self, kind: GgufErrorKind) -> GgufError {
        GgufError { offset: self.offset, kind }
    }

    const fn left(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// The next bytes, as many as there are of `len`.
    pub(super) fn next(&self, len: usize) -> &'a [u8] {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        &rest[..len.min(rest.len())]
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], GgufError> {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        let Some(taken) = rest.get(..len) else {
            return Err(self.error(GgufErrorKind::Truncated { need: len as u64, have: self.left() }));
        };
        self.offset += len;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn u32(&mut self) -> Result<u32, GgufError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, GgufError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// The number of elements that follow, each of at least `bytes` bytes.
    pub(super) fn count(&mut self, what: &'static str, bytes: usize) -> Result<usize, GgufError> {
        let at = self.offset;
        let count = self.u64()?;
        let most = self.left() / bytes.max(1);
        usize::try_from(count)
            .ok()
            .filter(|&count| count <= most)
            .ok_or(GgufError { offset: at, kind: GgufErrorKind::Count { what, count } })
    }

    pub(super) fn text(&mut self) -> Result<String, GgufError> {
        let len = self.u64()?;
        let Ok(len) = usize::try_from(len) else {
            return Err(self.error(GgufErrorKind::Truncated { need: len, have: self.left() }));
        };
        let at = self.offset;
        let bytes = self.take(len)?;
        let text = std::str::from_utf8(bytes);
        text.map(str::to_owned).map_err(|_| GgufError { offset: at, kind: GgufErrorKind::Utf8 })
    }
}
