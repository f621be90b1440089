//! Ranks: processes that share one file, each of which saves what its own devices hold.
//!
//! * A rank that opens the store gets a new session. What an earlier session of it left of steps that are
//!   not committed is dropped, and what all ranks left if the job is another one; and no process whose
//!   session is over can commit any more.
//! * What a rank saves is its contribution to a step, with a row in `pending`: it waits for the others, or was
//!   refused since it does not go with them. Packs that it uses are counted like those of a step.
//! * The transaction that brings the last contribution makes the step of all, and checks that they fit
//!   together. Until then nothing of it can be seen.
//! * Ranks take turns, each for a whole save.

mod differences;
mod merge;
mod pending;
mod pending_rows;

use std::fmt;
use std::path::Path;
use std::time::SystemTime;

use super::{CheckpointStore, StoreOptions, Sweep};
use crate::codec::content_hash;
use crate::db::{Database, WriteTx, random_id};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::MAX_RANKS;
use crate::record::{RankRecord, to_unix_ns};

pub(super) use merge::{Merged, check_agreement, merge};
pub use pending::{PendingRank, PendingStep, RankState};
pub(super) use pending_rows::{drop_pending, drop_stale, pending_rows};

/// The number of this process among those that train one model together, from 0, and how many there are:
/// `rank` and `world_size` of `torch.distributed`, `process_index` and `process_count` of JAX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rank {
    number: u32,
    world_size: u32,
    /// A hash of the name of the job.
    job: [u8; 16],
}

impl Rank {
    /// Rank `number` of `world_size`.
    ///
    /// # Errors
    /// `InvalidInput` if it is not below `world_size`, or that exceeds [`MAX_RANKS`].
    pub fn new(number: u32, world_size: u32) -> Result<Self> {
        if number >= world_size {
            return Err(Error::invalid(format!("there is no rank {number} of {world_size}"))
                .advise("ranks count from 0"));
        }
        if world_size > MAX_RANKS {
            return Err(Error::invalid(format!(
                "{world_size} ranks can't share a file, at most {MAX_RANKS} can"
            )));
        }
        Ok(Self { number, world_size, job: [0; 16] })
    }

    /// The same rank in the job `name`, which all ranks give alike and which is another one when all of them
    /// start again: `TORCHELASTIC_RUN_ID` with `TORCHELASTIC_RESTART_COUNT`, or `SLURM_JOB_ID` with
    /// `SLURM_RESTART_COUNT`. Then no step can be made of what one rank saved before the start and others
    /// after it.
    #[must_use]
    pub fn in_job(self, name: &str) -> Self {
        Self { job: content_hash(name.as_bytes()), ..self }
    }

    /// The number of the rank, from 0.
    pub fn number(self) -> u32 {
        self.number
    }

    /// How many ranks there are.
    pub fn world_size(self) -> u32 {
        self.world_size
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {}", self.number, self.world_size)
    }
}

/// A rank with the store open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) rank: Rank,
    session: [u8; 16],
}

impl Member {
    /// The key of the rank in tables.
    pub(super) fn key(&self) -> u64 {
        u64::from(self.rank.number)
    }

    /// Begins a session. What the rank gave in an earlier one is dropped, and with another number of ranks, or
    /// in another job, what all of them gave.
    fn join(database: &Database, rank: Rank) -> Result<Self> {
        let member = Self { rank, session: random_id() };
        let tx = database.write()?;
        // Nobody else writes meanwhile.
        let read = database.read()?;
        let mut same_job = true;
        for (number, record) in tx.ranks()? {
            match RankRecord::decode(number, &record) {
                Ok(record) if (record.world_size, record.job) == (rank.world_size, rank.job) => {
                    continue;
                }
                Ok(_) => same_job = false,
                Err(error) => tracing::warn!(number, %error, "the record of a rank is damaged"),
            }
            tx.remove_rank(number)?;
        }
        drop_pending(&tx, &read, |_, number, _| !same_job || number == member.key())?;
        let opened = RankRecord {
            world_size: rank.world_size,
            job: rank.job,
            session: member.session,
            opened_unix_ns: to_unix_ns(SystemTime::now()),
        };
        tx.put_rank(member.key(), &opened.encode(member.key())?)?;
        tx.commit()?;
        Ok(member)
    }

    /// Checks that the session is not over.
    pub(super) fn check(&self, tx: &WriteTx<'_>) -> Result<()> {
        let mut message =
            format!("another process has opened the store as {} since this one did", self.rank);
        for (number, record) in tx.ranks()? {
            let record = match RankRecord::decode(number, &record) {
                Err(error) if number == self.key() => return Err(error.into()),
                Err(_) => continue,
                Ok(record) => record,
            };
            if number == self.key() && record.session == self.session {
                return Ok(());
            }
            let RankRecord { world_size, job, .. } = record;
            if world_size != self.rank.world_size {
                message = format!(
                    "this process is {}, and the store was opened as rank {number} of {world_size} since",
                    self.rank
                );
            } else if job != self.rank.job {
                message = format!("rank {number} of another job has opened the store since");
            }
        }
        Err(Error::new(ErrorKind::Locked, message)
            .advise("give each process a rank of its own and all the same number of ranks"))
    }
}

impl CheckpointStore {
    /// Opens a store as one of several ranks, and creates it if there is no file. All ranks open the same
    /// file, on one machine; each saves what its own devices hold
    /// ([`Leaf::from_local_shards`](crate::Leaf::from_local_shards)) of the same steps.
    ///
    /// A [`save`](Self::save) writes what this rank gives to the step, and does not wait for the other
    /// ranks: the step can be seen from the moment in which the last one's save commits. That save checks
    /// that all ranks agree on structure, element types, shapes and shardings, and that each element of
    /// each array is given once; else it is refused. [`wait_committed`](Self::wait_committed) waits for the others, and
    /// [`pending_steps`](Self::pending_steps) lists what waits. What is the same on all ranks (a leaf that is
    /// given whole) is taken from rank 0; what differs from rank to rank, such as a random state, belongs in
    /// an array that is sharded over the ranks. Of a metric or custom metadata that several ranks give
    /// that of the lowest rank counts, and a step is pinned if one of them pins it.
    ///
    /// Opening drops what this rank gave to steps that are not committed: after a restart it gives it anew.
    /// A process that has the same rank still open can't write any more. So can no process if the store is
    /// opened for another number of ranks or in [another job](Rank::in_job), and all that waits is dropped
    /// then.
    ///
    /// Ranks take turns, each for a whole save. A source of leaves must not wait for another rank while it is
    /// read.
    ///
    /// ```
    /// # fn main() -> milepost::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("run.milepost");
    /// use std::time::Duration;
    /// use milepost::sharding::{Device, Mesh, NamedSharding, PartitionSpec, Platform};
    /// use milepost::{CheckpointStore, DType, ErrorKind, Leaf, Rank, SaveOptions, StoreOptions, Tree};
    ///
    /// let gpus = [0, 1].map(|ordinal| Device::new(Platform::Cuda, ordinal));
    /// let mesh = Mesh::new(gpus.clone(), [("data", 2)])?;
    /// let sharding = NamedSharding::new(mesh, PartitionSpec::new([Some("data")]))?;
    /// // In a trainer these are two processes.
    /// let open = |rank| CheckpointStore::open_as_rank(&path, Rank::new(rank, 2)?, StoreOptions::new());
    /// let ranks = [open(0)?, open(1)?];
    /// let save = |rank: usize| {
    ///     let shard = (gpus[rank].clone(), Leaf::from_vec(vec![rank as f32; 3], [3])?);
    ///     let weights = Leaf::from_local_shards(DType::F32, [6], sharding.clone(), [shard])?;
    ///     let state = Tree::map([("weights", Tree::Leaf(weights))]);
    ///     ranks[rank].save(100, &state, &SaveOptions::new())
    /// };
    /// assert_eq!(save(1)?.missing_ranks, [0]);
    /// let error = ranks[1].wait_committed(100, Duration::ZERO).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::TimedOut);
    /// save(0)?;
    /// ranks[1].wait_committed(100, Duration::from_mins(1))?;
    /// let weights = ranks[1].read(100)?.read_leaf(&"weights".parse()?)?;
    /// assert_eq!(weights.as_array::<f32>().unwrap().as_slice(), Some(&[0.0, 0.0, 0.0, 1.0, 1.0, 1.0][..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`create`](Self::create); `Locked` if a writer without a rank has it
    /// open; `Unsupported` where the file system has no locks that processes share.
    pub fn open_as_rank(path: impl AsRef<Path>, rank: Rank, options: StoreOptions) -> Result<Self> {
        let database = Database::open_or_create_shared(path.as_ref())?;
        let member =
            Member::join(&database, rank).map_err(|error| error.in_file(database.path()))?;
        let mut store = Self::new(database, options, Sweep::Done);
        store.member = Some(member);
        Ok(store)
    }

    /// The rank that the store was opened as; `None` if it was opened without one.
    pub fn rank(&self) -> Option<Rank> {
        self.member.map(|member| member.rank)
    }
}
