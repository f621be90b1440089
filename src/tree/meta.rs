//! What is known of a leaf without its contents.

use std::fmt;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::sharding::Sharding;

/// What a leaf is. The code of a kind is part of the file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LeafKind {
    /// An array of any shape, zero-dimensional and empty ones included.
    Array,
    /// One value; not the same as a zero-dimensional array.
    Scalar,
    /// UTF-8 text.
    String,
    /// A byte string.
    Bytes,
    /// A JSON value.
    Json,
}

impl LeafKind {
    const CODES: [(Self, u8, &'static str); 5] = [
        (Self::Array, 1, "array"),
        (Self::Scalar, 2, "scalar"),
        (Self::String, 3, "string"),
        (Self::Bytes, 4, "bytes"),
        (Self::Json, 5, "json"),
    ];

    /// The name of the kind, in lower case.
    pub fn name(self) -> &'static str {
        Self::CODES.iter().find(|row| row.0 == self).map_or("", |row| row.2)
    }

    pub(crate) fn code(self) -> u8 {
        Self::CODES.iter().find(|row| row.0 == self).map_or(0, |row| row.1)
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::CODES.iter().find(|row| row.1 == code).map(|row| row.0)
    }
}

impl fmt::Display for LeafKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is known of a leaf without its contents.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LeafMeta {
    /// What the leaf is.
    pub kind: LeafKind,
    /// The element type; `uint8` for strings, byte strings and JSON.
    pub dtype: DType,
    /// The shape; empty for scalars, the length in bytes for strings, byte strings and JSON.
    pub shape: Shape,
    /// How an array is spread over devices, or was when it was saved; `None` if nobody said.
    pub sharding: Option<Sharding>,
}

impl LeafMeta {
    /// The meta of an array.
    pub fn array(dtype: DType, shape: Shape) -> Self {
        Self::new(LeafKind::Array, dtype, shape)
    }

    /// The same with a sharding: in the target of a [plan](crate::StepReader::plan), the one that the
    /// array is to get.
    #[must_use]
    pub fn with_sharding(self, sharding: impl Into<Sharding>) -> Self {
        Self { sharding: Some(sharding.into()), ..self }
    }

    pub(crate) fn new(kind: LeafKind, dtype: DType, shape: Shape) -> Self {
        Self { kind, dtype, shape, sharding: None }
    }

    pub(super) fn text(kind: LeafKind, length: usize) -> Self {
        Self::new(kind, DType::U8, Shape::vector(length))
    }

    /// Checks that a leaf can be like this: the limits of the shape, and that it goes with the kind.
    ///
    /// # Errors
    /// `InvalidInput`.
    pub(crate) fn check(&self) -> Result<()> {
        self.size_bytes()?;
        let axes = self.shape.lengths().len();
        let fits = match self.kind {
            LeafKind::Array => true,
            LeafKind::Scalar => axes == 0,
            LeafKind::String | LeafKind::Bytes | LeafKind::Json => {
                axes == 1 && self.dtype == DType::U8
            }
        };
        if fits {
            return Ok(());
        }
        Err(Error::invalid(format!("a {} can't be {}{}", self.kind, self.dtype, self.shape)))
    }

    /// Checks that the contents of a string or JSON leaf are what they are said to be.
    pub(crate) fn check_text(&self, contents: &[u8]) -> Result<()> {
        match self.kind {
            LeafKind::String => std::str::from_utf8(contents).map(drop).map_err(|error| {
                Error::invalid("the contents of a string are not UTF-8").with_source(error)
            }),
            LeafKind::Json => serde_json::from_slice::<serde_json::Value>(contents)
                .map(drop)
                .map_err(|error| Error::invalid("the contents are not JSON").with_source(error)),
            LeafKind::Array | LeafKind::Scalar | LeafKind::Bytes => Ok(()),
        }
    }

    /// The size of the contents in bytes.
    ///
    /// # Errors
    /// `InvalidInput` if the shape exceeds a limit.
    pub fn size_bytes(&self) -> Result<usize> {
        self.shape.check()?;
        self.shape.size_bytes(self.dtype)
    }
}

impl fmt::Display for LeafMeta {
    /// `float32[2, 3]` for an array, `int64 scalar`, `string of 5 bytes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            LeafKind::Array => write!(f, "{}{}", self.dtype, self.shape),
            LeafKind::Scalar => write!(f, "{} scalar", self.dtype),
            kind => write!(f, "{kind} of {} bytes", self.shape.elements()),
        }
    }
}
