//! Where the tensors of a file lie that is read piece by piece.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use super::cursor::{Cursor, GgufError, GgufErrorKind};
use super::tensor::Header;
use super::{Gguf, Metadata, Source, Tensor, TensorType};
use crate::config::FACTORS;
use crate::{Config, Error, Result};

/// Bytes that are looked at first for a header: few have more, by a large vocabulary.
const FIRST: u64 = 4 << 20;

/// The longest header that is read.
const LONGEST: u64 = 256 << 20;

/// Bytes that are read at a time.
const CHUNK: usize = 8 << 20;

/// The header of a file, without the numbers of its tensors.
#[derive(Clone, Debug)]
pub struct Index {
    metadata: Metadata,
    tensors: BTreeMap<String, Place>,
}

/// A tensor's type and shape, and its bytes in the file.
#[derive(Clone, Debug)]
struct Place {
    kind: TensorType,
    shape: Vec<usize>,
    range: Range<u64>,
}

/// Some tensors of a file, in memory.
#[derive(Debug)]
pub(crate) struct Piece(Vec<(String, TensorType, Vec<usize>, Vec<u8>)>);

impl Index {
    /// Reads the header of a file.
    ///
    /// # Errors
    /// [`Error::Gguf`] as [`Gguf::parse`] has it, and [`Error::Read`].
    pub async fn read(source: &(impl Source + ?Sized)) -> Result<Self> {
        let size = source.size();
        let mut len = FIRST.min(size);
        loop {
            let head = read(source, 0..len, &mut |_| ()).await?;
            let mut cursor = Cursor::new(&head);
            match super::head(&mut cursor) {
                Ok((metadata, headers)) => return Ok(Self::new(&cursor, metadata, headers, size)?),
                // What seems to be cut off may go on.
                Err(error) if is_cut_off(&error) && len < size => {
                    if len >= LONGEST {
                        let kind = GgufErrorKind::Header { most: LONGEST };
                        return Err(GgufError { kind, ..error }.into());
                    }
                    len = len.saturating_mul(2).min(size).min(LONGEST);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn new(
        cursor: &Cursor<'_>,
        metadata: Metadata,
        headers: Vec<Header>,
        size: u64,
    ) -> Result<Self, GgufError> {
        let start = super::data_start(cursor, &metadata)? as u64;
        let tensors = super::by_name(headers, start, size, |header, range| Place {
            kind: header.kind,
            shape: header.shape,
            range,
        })?;
        Ok(Self { metadata, tensors })
    }

    /// The file's keys and values.
    #[must_use]
    pub const fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Bytes of all tensors.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.tensors.values().fold(0, |sum, place| sum.saturating_add(place.range.end - place.range.start))
    }

    /// Numbers of all tensors.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        let numbers = |place: &Place| place.shape.iter().product::<usize>() as u64;
        self.tensors.values().fold(0, |sum, place| sum.saturating_add(numbers(place)))
    }

    /// Name, type and shape of each tensor.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = (&str, TensorType, &[usize])> {
        self.tensors.iter().map(|(name, place)| (name.as_str(), place.kind, place.shape.as_slice()))
    }

    /// The sizes of the model in the file.
    ///
    /// # Errors
    /// As [`Config::from_gguf`], and [`Error::Read`].
    pub async fn config(&self, source: &(impl Source + ?Sized)) -> Result<Config> {
        // Some architectures have constants in tensors.
        let constants = self.piece(source, |name| FACTORS.contains(&name), &mut |_| ()).await?;
        let mut file = constants.file();
        for (name, Place { kind, shape, .. }) in &self.tensors {
            let unread = || Tensor { kind: *kind, shape: shape.clone(), data: &[] };
            file.tensors.entry(name.clone()).or_insert_with(unread);
        }
        file.metadata = self.metadata.clone();
        Config::from_gguf(&file)
    }

    /// Reads the tensors that are `meant` by their names. `progress` hears of the bytes of each chunk.
    pub(crate) async fn piece(
        &self,
        source: &(impl Source + ?Sized),
        meant: impl Fn(&str) -> bool,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Piece> {
        let mut tensors = Vec::new();
        for (name, place) in self.tensors.iter().filter(|(name, _)| meant(name)) {
            let data = read(source, place.range.clone(), progress).await?;
            tensors.push((name.clone(), place.kind, place.shape.clone(), data));
        }
        Ok(Piece(tensors))
    }
}

impl Piece {
    /// A file with nothing but these tensors.
    pub(crate) fn file(&self) -> Gguf<'_> {
        let tensors = self.0.iter().map(|(name, kind, shape, data)| {
            (name.clone(), Tensor { kind: *kind, shape: shape.clone(), data: data.as_slice() })
        });
        Gguf { metadata: Metadata::default(), tensors: tensors.collect() }
    }
}

/// Whether a longer piece of the file might be readable.
const fn is_cut_off(error: &GgufError) -> bool {
    matches!(error.kind, GgufErrorKind::Truncated { .. } | GgufErrorKind::Count { .. })
}

/// Some bytes of a file, in chunks.
async fn read(
    source: &(impl Source + ?Sized),
    range: Range<u64>,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<u8>> {
    let too_large = || Error::Read(io::ErrorKind::OutOfMemory.into());
    let len = usize::try_from(range.end - range.start).map_err(|_| too_large())?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| too_large())?;
    bytes.resize(len, 0);
    let mut offset = range.start;
    for chunk in bytes.chunks_mut(CHUNK) {
        source.read(offset, chunk).await.map_err(Error::Read)?;
        offset += chunk.len() as u64;
        progress(chunk.len() as u64);
    }
    Ok(bytes)
}
