//! Why a command could not do what it was asked for.

use std::path::PathBuf;
use std::process::ExitCode;

use milepost::{Error, ErrorKind};
use serde_json::{Value, json};

/// Why a command could not do what it was asked for.
pub(crate) enum Failure {
    Store(Error),
    /// The latest step was asked for, and there is none.
    NoStep(PathBuf),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl Failure {
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Store(error) => error.to_string(),
            Self::NoStep(file) => format!("{}: no step is saved in this store", file.display()),
        }
    }

    pub(crate) fn status(&self) -> Status {
        match self {
            Self::Store(error) => Status::of(std::slice::from_ref(error)),
            Self::NoStep(_) => Status::Failed,
        }
    }

    pub(crate) fn json(&self) -> Value {
        let fault = match self {
            Self::Store(error) => fault_json(error),
            Self::NoStep(_) => json!({
                "kind": format!("{:?}", ErrorKind::NotFound),
                "message": self.message(),
                "step": null,
                "path": null,
                "chunk": null,
            }),
        };
        json!({ "error": fault })
    }
}

/// How the command exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Fine,
    Damage,
    Failed,
}

impl Status {
    /// Damage that was found counts, also where something else kept us from looking further.
    pub(crate) fn of(faults: &[Error]) -> Self {
        if faults.iter().any(|fault| fault.kind() == ErrorKind::Damaged) {
            Self::Damage
        } else if faults.is_empty() {
            Self::Fine
        } else {
            Self::Failed
        }
    }
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(match status {
            Status::Fine => 0,
            Status::Damage => 1,
            Status::Failed => 2,
        })
    }
}

/// A fault for programs: its kind is the name of the [`ErrorKind`].
pub(crate) fn fault_json(fault: &Error) -> Value {
    json!({
        "kind": format!("{:?}", fault.kind()),
        "message": fault.to_string(),
        "step": fault.step(),
        "path": fault.path().map(ToString::to_string),
        "chunk": fault.chunk(),
    })
}
