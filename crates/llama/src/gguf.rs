//! Reader of GGUF: metadata, and tensors as slices of the file.
//!
//! The format is that of ggml's `docs/gguf.md`, versions 2 and 3, little-endian. Nothing in a file is trusted:
//! every length is compared with the bytes that are left before anything is allocated or sliced.
//!
//! [`Gguf`] is a file in memory or mapped into it, [`Index`] one that is read piece by piece from a [`Source`].

mod cursor;
mod index;
mod metadata;
mod source;
mod tensor;

use std::collections::BTreeMap;
use std::ops::Range;

use tensor::Places;

use cursor::Cursor;
pub use cursor::{GgufError, GgufErrorKind};
pub use index::Index;
pub use metadata::{Metadata, Value};
pub use source::Source;
pub use tensor::{Tensor, TensorType};

const MAGIC: &[u8] = b"GGUF";
const DEFAULT_ALIGNMENT: u64 = 32;
const ALIGNMENT_KEY: &str = "general.alignment";

/// The fewest bytes that describe a tensor: the lengths of its name, a type, an offset, no dimension.
const TENSOR_HEADER: usize = 8 + 4 + 4 + 8;
/// The fewest bytes of an entry of the metadata: the length of a key, a type, a value of one byte.
const ENTRY_HEADER: usize = 8 + 4 + 1;

/// A GGUF file in memory or mapped into it.
#[derive(Clone, Debug)]
pub struct Gguf<'a> {
    metadata: Metadata,
    tensors: BTreeMap<String, Tensor<'a>>,
}

impl<'a> Gguf<'a> {
    /// Parses a file's header. Tensors stay where they are.
    ///
    /// # Errors
    /// [`GgufError`], with the offset at which the file stops making sense: a wrong magic number or version, a
    /// count or a length beyond the file's end, a value of an unknown type, text that isn't UTF-8, a key or a
    /// tensor that is there twice, a tensor whose numbers lie outside the file or among those of another one.
    pub fn parse(file: &'a [u8]) -> Result<Self, GgufError> {
        let mut cursor = Cursor::new(file);
        let (metadata, headers) = head(&mut cursor)?;
        let (start, size) = (data_start(&cursor, &metadata)? as u64, file.len() as u64);
        let tensors = by_name(headers, start, size, |header, range| header.tensor(file, &range))?;
        Ok(Self { metadata, tensors })
    }

    /// The file's keys and values.
    #[must_use]
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The tensor called `name`.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&Tensor<'a>> {
        self.tensors.get(name)
    }

    /// All tensors with their names, in the order of these.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &Tensor<'a>)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }
}

/// What `make` makes of each tensor, by its name, and of where it lies in a file of `size` bytes whose tensors begin at byte
/// `start`. No name comes twice, and no byte is of two tensors.
fn by_name<T>(
    headers: Vec<tensor::Header>,
    start: u64,
    size: u64,
    make: impl Fn(tensor::Header, Range<u64>) -> T,
) -> Result<BTreeMap<String, T>, GgufError> {
    let (mut tensors, mut places) = (BTreeMap::new(), Places::default());
    for header in headers {
        let range = header.range(start, size)?;
        places.add(&header, range.clone());
        let (offset, name) = (header.at, header.name.clone());
        if tensors.insert(name.clone(), make(header, range)).is_some() {
            return Err(GgufError { offset, kind: GgufErrorKind::Duplicate(name) });
        }
    }
    places.check()?;
    Ok(tensors)
}

/// Everything before the tensors' numbers.
fn head(cursor: &mut Cursor<'_>) -> Result<(Metadata, Vec<tensor::Header>), GgufError> {
    // Fewer bytes are a file that is cut short only if it began so.
    if !MAGIC.starts_with(cursor.next(MAGIC.len())) {
        return Err(GgufError { offset: 0, kind: GgufErrorKind::Magic });
    }
    cursor.take(MAGIC.len())?;
    let version = cursor.u32()?;
    if !(2..=3).contains(&version) {
        return Err(GgufError { offset: MAGIC.len(), kind: GgufErrorKind::Version(version) });
    }
    let tensor_count = cursor.count("tensors", TENSOR_HEADER)?;
    let entries = cursor.count("metadata entries", ENTRY_HEADER)?;
    let metadata = Metadata::parse(cursor, entries)?;
    let headers = (0..tensor_count).map(|_| tensor::Header::parse(cursor)).collect::<Result<_, _>>()?;
    Ok((metadata, headers))
}

/// Where the tensors' numbers begin: behind the header, aligned as every tensor is.
fn data_start(cursor: &Cursor<'_>, metadata: &Metadata) -> Result<usize, GgufError> {
    let offset = cursor.offset();
    let alignment = match metadata.get(ALIGNMENT_KEY) {
        None => DEFAULT_ALIGNMENT,
        Some(value) => value.unsigned().unwrap_or_default(),
    };
    let wrong = GgufError { offset, kind: GgufErrorKind::Alignment(alignment) };
    let alignment = usize::try_from(alignment).ok().filter(|bytes| bytes.is_power_of_two());
    alignment.and_then(|bytes| offset.checked_next_multiple_of(bytes)).ok_or(wrong)
}
