//! What became of a save.

use crate::error::{ErrorKind, Result};
use crate::store::{Admission, SaveReport};

/// What became of a save.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SaveOutcome {
    /// The step is saved, and durable.
    Saved(Box<SaveReport>),
    /// The step was not saved, for this reason.
    Skipped(SkipReason),
}

impl SaveOutcome {
    /// The outcome of a save that the manager decided to do.
    pub(super) fn new(saved: Result<SaveReport>, admission: Admission) -> Result<Self> {
        match saved {
            // It was saved through the store since the policy was asked.
            Err(error)
                if error.kind() == ErrorKind::AlreadyExists && admission == Admission::ByPolicy =>
            {
                Ok(Self::Skipped(SkipReason::AlreadySaved))
            }
            saved => saved.map(|report| Self::Saved(Box::new(report))),
        }
    }

    /// Whether the step was saved.
    pub fn is_saved(&self) -> bool {
        matches!(self, Self::Saved(_))
    }
}

/// Why a step was not saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// The save policy did not ask for this step.
    OffPolicy,
    /// A later step is saved, or on its way.
    NotNewer {
        /// The latest saved step.
        latest: u64,
    },
    /// This step is saved, or on its way.
    AlreadySaved,
    /// As many saves were under way as may be, and the manager was told to
    /// [skip](crate::WhenFull::Skip) then.
    QueueFull,
    /// While it waited, a newer save took its place: the manager was told to
    /// [keep only the newest](crate::WhenFull::KeepNewest).
    Superseded {
        /// The newer step.
        by: u64,
    },
}

impl std::fmt::Display for SkipReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OffPolicy => f.write_str("the save policy does not ask for this step"),
            Self::NotNewer { latest } => {
                write!(f, "step {latest}, a later one, is saved or on its way")
            }
            Self::AlreadySaved => f.write_str("this step is saved already, or on its way"),
            Self::QueueFull => f.write_str("too many saves are under way"),
            Self::Superseded { by } => write!(f, "step {by}, a newer one, took its place"),
        }
    }
}
