//! The tables of format 1. `src/docs/format.md` says what is in them.

use redb::TableDefinition;

/// Facts about the store as a whole.
pub(super) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// Step → step record. A step exists exactly when its row here does.
pub(super) const STEPS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("steps");

/// Step → structure record.
pub(super) const STRUCTURES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("structures");

/// Step and encoded key path → leaf record.
pub(super) const LEAVES: TableDefinition<'_, (u64, &[u8]), &[u8]> = TableDefinition::new("leaves");

/// Step → shardings record, for a step that has any. Stores made before there were shardings don't have
/// the table.
pub(super) const SHARDINGS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("shardings");

/// Pack → encoded chunks, each at a multiple of 16.
pub(super) const PACKS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("packs");

/// Pack → the number of steps and of pending ranks that use it.
pub(super) const PACK_REFS: TableDefinition<'_, u64, u64> = TableDefinition::new("pack_refs");

/// Rank → rank record. The tables of ranks are there in stores that were opened by one.
pub(super) const RANKS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("ranks");

/// Step and rank → pending record, for a step that is not committed.
pub(super) const PENDING: TableDefinition<'_, (u64, u64), &[u8]> = TableDefinition::new("pending");

/// Step and rank → contribution record, for a pending record without a refusal.
pub(super) const CONTRIBUTIONS: TableDefinition<'_, (u64, u64), &[u8]> =
    TableDefinition::new("contributions");

/// `META`: the format version, a little-endian `u32`. Its place and form never change.
pub(super) const FORMAT_KEY: &str = "format";

/// `META`: 16 random bytes that name the store.
pub(super) const STORE_ID_KEY: &str = "store_id";

/// `META`: when the store was created, nanoseconds since 1970-01-01 UTC, a little-endian `u64`.
pub(super) const CREATED_KEY: &str = "created_unix_ns";

/// `META`: the pack mark record.
pub(super) const PACK_MARK_KEY: &str = "pack_mark";
