//! How a store works, and what goes with one save.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use crate::codec::Compression;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::limits::{MAX_CUSTOM_METADATA_BYTES, MAX_KEY_NAME_BYTES, MAX_METRICS};
use crate::path::PathRules;
use crate::shape::{Grid, Shape};

/// The settings of an open store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub(crate) compression: PathRules<Compression>,
    pub(crate) chunk_hints: PathRules<Option<ChunkHint>>,
    pub(crate) threads: NonZeroUsize,
    pub(crate) pending_grace: Duration,
}

/// Which slices of an array are to be cheap to read: it is cut along these axes until each chunk has at most
/// so many bytes. Orbax calls them `shard_axes` and `chunk_byte_size`.
///
/// Without a hint the chunks of an array, or of each of its shards, follow each other in C order: rows are
/// cheap to read then, and of columns all is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkHint {
    axes: Vec<usize>,
    bytes: NonZeroUsize,
}

impl ChunkHint {
    /// The axes, counted from 0, and the most raw bytes of a chunk. It has more if it has one index of each
    /// of the axes, up to what any chunk has; very small ones cost more than they spare.
    ///
    /// # Errors
    /// `InvalidInput` without an axis, or with one twice.
    pub fn new(axes: impl Into<Vec<usize>>, bytes: NonZeroUsize) -> Result<Self> {
        let axes: Vec<usize> = axes.into();
        if axes.is_empty() {
            return Err(Error::invalid("a chunk hint names no axis"));
        }
        let mut sorted = axes.clone();
        sorted.sort_unstable();
        let mut pairs = sorted.iter().zip(sorted.iter().skip(1));
        if let Some((twice, _)) = pairs.find(|(one, other)| one == other) {
            return Err(Error::invalid(format!("a chunk hint names axis {twice} twice")));
        }
        Ok(Self { axes, bytes })
    }

    /// `grid` with further cuts, for an array of `shape` and `dtype`.
    pub(crate) fn refine(&self, grid: &Grid, shape: &Shape, dtype: DType) -> Result<Grid> {
        let axes = shape.lengths().len();
        if let Some(axis) = self.axes.iter().find(|axis| **axis >= axes) {
            return Err(Error::invalid(format!(
                "a chunk hint names axis {axis} of {dtype}{shape}, which has {axes}"
            ))
            .advise("give the leaf a hint of its own, or none"));
        }
        Ok(grid.refined(&self.axes, (self.bytes.get() / dtype.size_bytes()).max(1)))
    }
}

const DEFAULT_PENDING_GRACE: Duration = Duration::from_hours(1);

impl Default for StoreOptions {
    fn default() -> Self {
        let available = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        // Reading is bound by memory bandwidth, which a few threads use up.
        let threads = available.min(NonZeroUsize::MIN.saturating_add(7));
        Self {
            compression: PathRules::default(),
            chunk_hints: PathRules::default(),
            threads,
            pending_grace: DEFAULT_PENDING_GRACE,
        }
    }
}

impl StoreOptions {
    /// The defaults: no compression, as many threads as there are cores, at most 8.
    pub fn new() -> Self {
        Self::default()
    }

    /// How saves compress leaves. What is saved already stays as it is.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression.set_all(compression);
        self
    }

    /// How saves compress the leaves whose paths match a pattern; of several that match, the last one
    /// counts. A path is written as it is shown, `params/layers[0]/w`; in a pattern `*` stands for
    /// anything up to the next `/`, `**` for any keys, `?` for one character, and `[[]` for `[`.
    ///
    /// ```
    /// # fn main() -> milepost::Result<()> {
    /// use milepost::{Compression, StoreOptions};
    ///
    /// // Frozen weights are written once, so it pays to make them small; the rest is to be fast.
    /// let options = StoreOptions::new()
    ///     .compression_for("params/**", Compression::Auto)?
    ///     .compression_for("params/lora/**", Compression::None)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` if it is no pattern.
    pub fn compression_for(mut self, pattern: &str, compression: Compression) -> Result<Self> {
        self.compression.add(pattern, compression)?;
        Ok(self)
    }

    /// How saves cut the arrays whose paths match a pattern, as in
    /// [`compression_for`](Self::compression_for); `None` takes hints of wider patterns back. What is no array
    /// has no axes, and is not concerned.
    ///
    /// ```
    /// # fn main() -> milepost::Result<()> {
    /// use std::num::NonZeroUsize;
    /// use milepost::{ChunkHint, StoreOptions};
    ///
    /// // An evaluator reads single experts: axis 0 of the one, axis 2 of the other.
    /// let bytes = NonZeroUsize::new(256 << 10).unwrap();
    /// let options = StoreOptions::new()
    ///     .chunk_hint_for("**/experts", ChunkHint::new([0], bytes)?)?
    ///     .chunk_hint_for("**/router", ChunkHint::new([2], bytes)?)?
    ///     .chunk_hint_for("opt_state/**", None)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` if it is no pattern. A save is refused where a hint names an axis that an array has not.
    pub fn chunk_hint_for(
        mut self,
        pattern: &str,
        hint: impl Into<Option<ChunkHint>>,
    ) -> Result<Self> {
        self.chunk_hints.add(pattern, hint.into())?;
        Ok(self)
    }

    /// How many threads a restore uses, and how many encode while a save is written.
    #[must_use]
    pub fn threads(mut self, threads: NonZeroUsize) -> Self {
        self.threads = threads;
        self
    }

    /// For how long what [ranks](crate::CheckpointStore::open_as_rank) gave to a step waits for the others, an
    /// hour unless this says otherwise: later saves of other steps drop it then. It has to be longer than the
    /// ranks are apart.
    #[must_use]
    pub fn pending_grace(mut self, grace: Duration) -> Self {
        self.pending_grace = grace;
        self
    }
}

/// What goes with one save.
#[derive(Debug, Clone)]
pub struct SaveOptions {
    pub(crate) metrics: BTreeMap<String, f64>,
    pub(crate) custom_metadata: Option<serde_json::Value>,
    pub(crate) existing: Existing,
    pub(crate) admission: Admission,
    pub(crate) pinned: bool,
    pub(crate) record_sharding: bool,
}

impl Default for SaveOptions {
    fn default() -> Self {
        Self {
            metrics: BTreeMap::new(),
            custom_metadata: None,
            existing: Existing::default(),
            admission: Admission::default(),
            pinned: false,
            record_sharding: true,
        }
    }
}

/// What a save does if the step is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Existing {
    #[default]
    Refuse,
    Replace,
}

/// Whether a manager asks its save policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Admission {
    #[default]
    ByPolicy,
    Forced,
}

impl SaveOptions {
    /// No metrics, no metadata; a step that exists is not replaced.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a step metric, such as a loss or an accuracy. A keep policy can rank steps by it.
    #[must_use]
    pub fn metric(mut self, name: impl Into<String>, value: f64) -> Self {
        self.metrics.insert(name.into(), value);
        self
    }

    /// Adds step metrics.
    #[must_use]
    pub fn metrics<N: Into<String>>(mut self, metrics: impl IntoIterator<Item = (N, f64)>) -> Self {
        self.metrics.extend(metrics.into_iter().map(|(name, value)| (name.into(), value)));
        self
    }

    /// Keeps `metadata` with the step.
    #[must_use]
    pub fn custom_metadata(mut self, metadata: serde_json::Value) -> Self {
        self.custom_metadata = Some(metadata);
        self
    }

    /// Replaces the step if it exists, in the same commit: at every moment the old or the new
    /// one is there.
    #[must_use]
    pub fn replace(mut self) -> Self {
        self.existing = Existing::Replace;
        self
    }

    /// Saves whatever the manager's save policy says, also a step before the latest one.
    #[must_use]
    pub fn force(mut self) -> Self {
        self.admission = Admission::Forced;
        self
    }

    /// Pins the step: no keep policy removes it until it is unpinned.
    #[must_use]
    pub fn pin(mut self) -> Self {
        self.pinned = true;
        self
    }

    /// Whether the shardings of arrays are recorded with them; they are unless this says otherwise. An
    /// array is stored as its shards either way.
    #[must_use]
    pub fn record_sharding(mut self, record: bool) -> Self {
        self.record_sharding = record;
        self
    }

    /// The custom metadata as JSON text, all limits checked.
    pub(crate) fn checked_metadata(&self) -> Result<Option<String>> {
        if self.metrics.len() > MAX_METRICS {
            return Err(Error::invalid(format!(
                "the save has {} step metrics, at most {MAX_METRICS} can be stored",
                self.metrics.len()
            )));
        }
        if let Some(name) = self.metrics.keys().find(|name| name.len() > MAX_KEY_NAME_BYTES) {
            return Err(Error::invalid(format!(
                "the name of a step metric has {} bytes, at most {MAX_KEY_NAME_BYTES} can be stored",
                name.len()
            )));
        }
        let Some(metadata) = &self.custom_metadata else {
            return Ok(None);
        };
        let leaf = crate::tree::Leaf::json(metadata);
        leaf.check()?;
        let text = String::from_utf8_lossy(leaf.contents().unwrap_or_default()).into_owned();
        if text.len() > MAX_CUSTOM_METADATA_BYTES {
            return Err(Error::invalid(format!(
                "the custom metadata has {} bytes, at most {MAX_CUSTOM_METADATA_BYTES} can be stored",
                text.len()
            ))
            .advise("save it as a JSON leaf"));
        }
        Ok(Some(text))
    }
}
