//! redb's errors and panics as ours.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, ErrorKind, Result};

/// Runs one operation of redb. Its errors become ours; a panic in it, which a damaged file can
/// cause, becomes a `Damaged` error.
pub(super) fn contain<T, E: Into<redb::Error>>(
    operation: impl FnOnce() -> Result<T, E>,
) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(operation)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(convert(error.into())),
        Err(panic) => Err(damaged(&panic_message(panic.as_ref()))),
    }
}

/// Drops a part of redb, whose drop may panic on a damaged file too.
pub(super) fn contain_drop<T>(part: T) {
    if catch_unwind(AssertUnwindSafe(move || drop(part))).is_err() {
        tracing::error!("closing a damaged store file failed; its last commit is not affected");
    }
}

fn convert(error: redb::Error) -> Error {
    match error {
        redb::Error::Io(error) if error.kind() == io::ErrorKind::InvalidData => {
            super::not_a_store(&error.to_string()).with_source(error)
        }
        redb::Error::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            damaged("the file is shorter than it says")
        }
        redb::Error::Io(error) => Error::from_io(error, "the file system reported an error"),
        redb::Error::Corrupted(message) => damaged(&message),
        redb::Error::TableDoesNotExist(_) | redb::Error::TableTypeMismatch { .. } => {
            super::not_a_store("it is a redb database of another application").with_source(error)
        }
        redb::Error::DatabaseAlreadyOpen => {
            let message = "the store is open for writing already, here or in another process";
            Error::new(ErrorKind::Locked, message)
                .advise("close that one, or open this one for reading only")
                .with_source(error)
        }
        redb::Error::TransactionInProgress => {
            Error::new(ErrorKind::Locked, "a step is being read, here or in another process")
                .advise("drop its reader first")
                .with_source(error)
        }
        redb::Error::UpgradeRequired(_) => {
            super::not_a_store("it is a redb database of an older redb").with_source(error)
        }
        redb::Error::PreviousIo => {
            Error::new(ErrorKind::Io, "an earlier error closed the store for writing")
                .advise("open the store again")
                .with_source(error)
        }
        redb::Error::Unsupported | redb::Error::LockProtocolMismatch => {
            let message = "the file system, or another program, does not support sharing the file";
            Error::new(ErrorKind::Unsupported, message).with_source(error)
        }
        error => Error::new(ErrorKind::Io, error.to_string()).with_source(error),
    }
}

/// Whether redb wants to repair the file before it is read.
pub(super) fn is_unclean(error: &Error) -> bool {
    matches!(redb_error(error), Some(redb::Error::RepairAborted))
}

/// Whether an earlier error closed the database.
pub(super) fn is_closed(error: &Error) -> bool {
    use redb::Error::{DatabaseClosed, LockPoisoned, PreviousIo};
    matches!(redb_error(error), Some(PreviousIo | DatabaseClosed | LockPoisoned(_)))
}

fn redb_error(error: &Error) -> Option<&redb::Error> {
    std::error::Error::source(error).and_then(|source| source.downcast_ref())
}

fn damaged(message: &str) -> Error {
    Error::damaged(format!("the database structure is damaged: {message}"))
        .advise("restore what can still be read, and copy the file before you write to it")
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let result: Result<()> = contain(|| -> Result<(), redb::Error> { panic!("page 7 is odd") });
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert!(error.to_string().contains("page 7 is odd"), "{error}");
    }
}
