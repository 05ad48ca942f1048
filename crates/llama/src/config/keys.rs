//! Values of the keys of one architecture.

use crate::gguf::{Metadata, Value};
use crate::{Error, Result};

/// The largest extent of a model, far beyond any: sums and products of two of them fit in 64 bits.
const MAX_SIZE: u64 = 1 << 24;

/// The metadata and the prefix of the architecture's keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys<'a> {
    pub(super) metadata: &'a Metadata,
    pub(super) prefix: &'static str,
}

impl<'a> Keys<'a> {
    fn name(&self, key: &str) -> String {
        format!("{}.{key}", self.prefix)
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        self.metadata.get(&self.name(key))
    }

    fn missing(&self, key: &str) -> Error {
        Error::MissingKey { key: self.name(key) }
    }

    pub(super) fn require(
        &self,
        key: &str,
        holds: bool,
        expected: impl ToString,
        got: impl ToString,
    ) -> Result<()> {
        if holds { Ok(()) } else { Err(Error::value(self.name(key), expected, got)) }
    }

    /// Refuses a file with a key.
    pub(super) fn refuse(&self, key: &str) -> Result<()> {
        self.require(key, self.value(key).is_none(), "not to be there", "a value")
    }

    /// A size that may be missing, of any value up to [`MAX_SIZE`]. Of a list with a number for each layer, the
    /// one that all have.
    pub(super) fn optional_size(&self, key: &str) -> Result<Option<usize>> {
        let Some(mut value) = self.value(key) else { return Ok(None) };
        if let Some([first, rest @ ..]) = value.elements() {
            self.require(
                key,
                rest.iter().all(|other| other == first),
                "the same in every layer",
                "different",
            )?;
            value = first;
        }
        let size =
            value.unsigned().filter(|&size| size <= MAX_SIZE).and_then(|size| usize::try_from(size).ok());
        let Some(size) = size else {
            return Err(Error::value(self.name(key), format!("at most {MAX_SIZE}"), format!("{value:?}")));
        };
        Ok(Some(size))
    }

    /// A size of 1 or more.
    pub(super) fn size(&self, key: &str) -> Result<usize> {
        let size = self.optional_size(key)?.ok_or_else(|| self.missing(key))?;
        self.require(key, size > 0, "1 or more", size)?;
        Ok(size)
    }

    /// A size of 1 or more, or `default` where the file has none.
    pub(super) fn size_or(&self, key: &str, default: usize) -> Result<usize> {
        if self.value(key).is_some() { self.size(key) } else { Ok(default) }
    }

    pub(super) fn number(&self, key: &str) -> Result<f64> {
        let value = self.value(key).ok_or_else(|| self.missing(key))?;
        let number = value.float().filter(|number| number.is_finite());
        number.ok_or_else(|| Error::value(self.name(key), "a finite number", format!("{value:?}")))
    }

    pub(super) fn number_or(&self, key: &str, default: f64) -> Result<f64> {
        if self.value(key).is_some() { self.number(key) } else { Ok(default) }
    }

    /// A truth value that may be missing.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(Error::value(self.name(key), "true or false", format!("{other:?}"))),
        }
    }

    /// A text that may be missing.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let text = value.text();
        text.map(Some).ok_or_else(|| Error::value(self.name(key), "a text", format!("{value:?}")))
    }

    /// Truth values, one for each layer, where a key may also have a number.
    pub(super) fn flags(&self, key: &str) -> Result<Option<Vec<bool>>> {
        let Some(elements) = self.value(key).and_then(Value::elements) else { return Ok(None) };
        let flags: Option<Vec<bool>> = elements.iter().map(Value::boolean).collect();
        flags
            .map(Some)
            .ok_or_else(|| Error::value(self.name(key), "true or false for each layer", "other values"))
    }

    /// The first of some keys that the file has: later ones are older names.
    pub(super) fn either<'k>(&self, names: [&'k str; 2]) -> &'k str {
        if self.value(names[0]).is_none() && self.value(names[1]).is_some() { names[1] } else { names[0] }
    }
}
