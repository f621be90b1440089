//! What became of a save.

use crate::store::SaveReport;

/// What [`CheckpointManager::save`](crate::CheckpointManager::save) did.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SaveOutcome {
    /// The step is saved, and durable.
    Saved(Box<SaveReport>),
    /// The step was not saved, for this reason.
    Skipped(SkipReason),
}

impl SaveOutcome {
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
    /// A later step is saved.
    NotNewer {
        /// The latest saved step.
        latest: u64,
    },
    /// This step is saved.
    AlreadySaved,
}

impl std::fmt::Display for SkipReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OffPolicy => f.write_str("the save policy does not ask for this step"),
            Self::NotNewer { latest } => write!(f, "step {latest}, a later one, is saved"),
            Self::AlreadySaved => f.write_str("this step is saved already"),
        }
    }
}
