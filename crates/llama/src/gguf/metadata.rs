//! Keys and typed values.

use std::collections::BTreeMap;

use super::cursor::{Cursor, GgufError, GgufErrorKind};

/// The type of an array, as values have it.
const ARRAY: u32 = 9;

/// Elements of all arrays of a file together: some ten times those of the largest vocabularies. In memory an
/// element takes many times its bytes of the file.
const MAX_ELEMENTS: usize = 1 << 24;

/// A value of the metadata. Numbers are widened without loss.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// u8, u16, u32 or u64.
    Unsigned(u64),
    /// i8, i16, i32 or i64.
    Signed(i64),
    /// f32 or f64.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// Text.
    Text(String),
    /// Values of one type.
    Array(Vec<Self>),
}

impl Value {
    /// Takes the elements of an array from the `room` that is left for those of all arrays.
    fn parse(cursor: &mut Cursor<'_>, kind: u32, room: &mut usize) -> Result<Self, GgufError> {
        Ok(match kind {
            0 => Self::Unsigned(u8::from_le_bytes(cursor.array()?).into()),
            1 => Self::Signed(i8::from_le_bytes(cursor.array()?).into()),
            2 => Self::Unsigned(u16::from_le_bytes(cursor.array()?).into()),
            3 => Self::Signed(i16::from_le_bytes(cursor.array()?).into()),
            4 => Self::Unsigned(cursor.u32()?.into()),
            5 => Self::Signed(i32::from_le_bytes(cursor.array()?).into()),
            6 => Self::Float(f32::from_le_bytes(cursor.array()?).into()),
            7 => match cursor.array()? {
                [byte @ (0 | 1)] => Self::Bool(byte == 1),
                [byte] => return Err(cursor.error(GgufErrorKind::Bool(byte))),
            },
            8 => Self::Text(cursor.text()?),
            ARRAY => Self::array(cursor, room)?,
            10 => Self::Unsigned(cursor.u64()?),
            11 => Self::Signed(i64::from_le_bytes(cursor.array()?)),
            12 => Self::Float(f64::from_le_bytes(cursor.array()?)),
            other => return Err(cursor.error(GgufErrorKind::ValueType(other))),
        })
    }

    fn array(cursor: &mut Cursor<'_>, room: &mut usize) -> Result<Self, GgufError> {
        let kind = cursor.u32()?;
        let bytes = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10..=12 => 8,
            // Arrays of arrays, which no model has, would recurse as deep as a file likes.
            other => return Err(cursor.error(GgufErrorKind::ValueType(other))),
        };
        let count = cursor.count("elements of an array", bytes)?;
        let too_many = GgufErrorKind::Elements { most: MAX_ELEMENTS };
        *room = room.checked_sub(count).ok_or_else(|| cursor.error(too_many))?;
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(Self::parse(cursor, kind, room)?);
        }
        Ok(Self::Array(values))
    }

    /// A whole number that isn't negative.
    #[must_use]
    pub fn unsigned(&self) -> Option<u64> {
        match *self {
            Self::Unsigned(number) => Some(number),
            Self::Signed(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }

    /// Any number.
    #[must_use]
    pub const fn float(&self) -> Option<f64> {
        match *self {
            Self::Unsigned(number) => Some(number as f64),
            Self::Signed(number) => Some(number as f64),
            Self::Float(number) => Some(number),
            _ => None,
        }
    }

    /// A truth value.
    #[must_use]
    pub const fn boolean(&self) -> Option<bool> {
        match *self {
            Self::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// Text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Values of one type.
    #[must_use]
    pub fn elements(&self) -> Option<&[Self]> {
        match self {
            Self::Array(values) => Some(values),
            _ => None,
        }
    }
}

/// The keys and values of a file.
#[derive(Clone, Debug, Default)]
pub struct Metadata(BTreeMap<String, Value>);

impl Metadata {
    pub(super) fn parse(cursor: &mut Cursor<'_>, entries: usize) -> Result<Self, GgufError> {
        let (mut values, mut room) = (BTreeMap::new(), MAX_ELEMENTS);
        for _ in 0..entries {
            let at = cursor.offset();
            let key = cursor.text()?;
            let kind = cursor.u32()?;
            if values.insert(key.clone(), Value::parse(cursor, kind, &mut room)?).is_some() {
                return Err(GgufError { offset: at, kind: GgufErrorKind::Duplicate(key) });
            }
        }
        Ok(Self(values))
    }

    /// The value of `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// All keys and values, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }
}
