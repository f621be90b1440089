//! The one public error: a kind to match on, where it happened, and what to do about it.

use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::path::KeyPath;

/// `Result` with milepost's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, for a program to decide on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such file, step or leaf.
    NotFound,
    /// The step is there already and replacing it was not asked for.
    AlreadyExists,
    /// The file is not a milepost store.
    NotAStore,
    /// The file was written by a newer milepost.
    UnsupportedVersion,
    /// Another writer has the store open, or has taken the place of this one.
    Locked,
    /// The store was opened for reading only, or the file or its folder may not be written.
    ReadOnly,
    /// Stored data is not what was written. Other steps and leaves may be whole.
    Damaged,
    /// An argument can't be saved or doesn't make sense; nothing was changed that can be seen.
    InvalidInput,
    /// The saved step and the target of a restore differ, or what ranks give to one step.
    Mismatch,
    /// What was waited for did not come in time. It may still come.
    TimedOut,
    /// Arrays are to be on devices that are not in the registry.
    DevicesMissing,
    /// The disk is full, or a quota or file size limit is reached. (At a limit set with `ulimit -f`
    /// the system kills the process, unless it ignores the signal SIGXFSZ.)
    OutOfSpace,
    /// The operating system reported another failure.
    Io,
    /// There is no memory for what was asked.
    OutOfMemory,
    /// Code that the background writer calls, such as a keep policy, panicked.
    Panicked,
    /// This build or this file system can't do what was asked.
    Unsupported,
}

/// An error of milepost.
///
/// [`kind`](Error::kind) says what to do in code; the accessors say where it happened; the
/// message says it all to a person, in one line, with further lines for the differences of a
/// mismatch.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    advice: Option<String>,
    file: Option<PathBuf>,
    step: Option<u64>,
    path: Option<KeyPath>,
    shard: Option<usize>,
    chunk: Option<usize>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// The kind, to match on.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The store file, where one is concerned.
    pub fn file(&self) -> Option<&Path> {
        self.0.file.as_deref()
    }

    /// The step, where one is concerned.
    pub fn step(&self) -> Option<u64> {
        self.0.step
    }

    /// The path of the leaf or tree node, where one is concerned.
    pub fn path(&self) -> Option<&KeyPath> {
        self.0.path.as_ref()
    }

    /// The number of the shard within its leaf, where a chunk is concerned. An array in one part is
    /// shard 0.
    pub fn shard(&self) -> Option<usize> {
        self.0.shard
    }

    /// The number of the chunk within its shard, where one is concerned.
    pub fn chunk(&self) -> Option<usize> {
        self.0.chunk
    }

    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            advice: None,
            file: None,
            step: None,
            path: None,
            shard: None,
            chunk: None,
            source: None,
        }))
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    pub(crate) fn damaged(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Damaged, message)
    }

    /// An I/O error, by what the user can do about it. `doing` says what failed.
    pub(crate) fn from_io(error: io::Error, doing: &str) -> Self {
        use io::ErrorKind as Io;
        let (kind, advice) = match error.kind() {
            Io::StorageFull | Io::QuotaExceeded | Io::FileTooLarge => (
                ErrorKind::OutOfSpace,
                "free space and save again; every saved step is still there",
            ),
            Io::PermissionDenied | Io::ReadOnlyFilesystem => {
                (ErrorKind::ReadOnly, "check the permissions of the file and its folder")
            }
            Io::NotFound => (ErrorKind::NotFound, "check the path"),
            _ => (ErrorKind::Io, "see whether the disk is well"),
        };
        Self::new(kind, format!("{doing}: {error}")).advise(advice).with_source(error)
    }

    /// What the caller can do about it: a clause that can follow a semicolon.
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.0.advice = Some(advice.into());
        self
    }

    /// Adds what it means for the caller.
    pub(crate) fn with_note(mut self, note: &str) -> Self {
        self.0.message = format!("{} ({note})", self.0.message);
        self
    }

    /// Names the file, unless a lower layer did.
    pub(crate) fn in_file(mut self, file: &Path) -> Self {
        self.0.file.get_or_insert_with(|| file.to_owned());
        self
    }

    /// Names the step, unless a lower layer did.
    pub(crate) fn at_step(mut self, step: u64) -> Self {
        self.0.step.get_or_insert(step);
        self
    }

    /// Names the leaf or tree node, unless a lower layer did.
    pub(crate) fn at_path(mut self, path: &KeyPath) -> Self {
        self.0.path.get_or_insert_with(|| path.clone());
        self
    }

    /// Names the chunk and its shard, unless a lower layer did.
    pub(crate) fn at_chunk(mut self, shard: usize, chunk: usize) -> Self {
        if self.0.chunk.is_none() {
            (self.0.shard, self.0.chunk) = (Some(shard), Some(chunk));
        }
        self
    }

    pub(crate) fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        let mut places = Vec::new();
        if let Some(file) = &inner.file {
            places.push(file.display().to_string());
        }
        if let Some(step) = inner.step {
            places.push(format!("step {step}"));
        }
        if let Some(path) = &inner.path {
            places.push(path.to_string());
        }
        if let Some(shard) = inner.shard.filter(|shard| *shard > 0) {
            places.push(format!("shard {shard}"));
        }
        if let Some(chunk) = inner.chunk {
            places.push(format!("chunk {chunk}"));
        }
        if !places.is_empty() {
            write!(f, "{}: ", places.join(", "))?;
        }
        f.write_str(&inner.message)?;
        match &inner.advice {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.0.kind)?;
        match &self.0.source {
            Some(source) => write!(f, " caused by {source:?}"),
            None => Ok(()),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| {
            let source: &(dyn StdError + 'static) = source;
            source
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_where_what_and_what_to_do() {
        let error = Error::damaged("checksum is 0x1, expected 0x2")
            .advise("restore another step")
            .in_file(Path::new("run.milepost"))
            .at_step(7)
            .at_chunk(0, 3)
            .at_step(8);
        assert_eq!(
            error.to_string(),
            "run.milepost, step 7, chunk 3: checksum is 0x1, expected 0x2; restore another step"
        );
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert_eq!((error.step(), error.chunk()), (Some(7), Some(3)));
    }

    #[test]
    fn the_source_is_kept() {
        let error = Error::new(ErrorKind::Io, "can't read").with_source(std::io::Error::other("x"));
        assert_eq!(error.source().map(ToString::to_string), Some("x".to_owned()));
    }

    #[test]
    fn a_full_disk_is_told_from_a_broken_one() {
        let kind = |kind: io::ErrorKind| Error::from_io(kind.into(), "x").kind();
        assert_eq!(kind(io::ErrorKind::StorageFull), ErrorKind::OutOfSpace);
        assert_eq!(kind(io::ErrorKind::ReadOnlyFilesystem), ErrorKind::ReadOnly);
        assert_eq!(kind(io::ErrorKind::Other), ErrorKind::Io);
    }
}
