//! Rows of a store changed through redb, under right checksums where there are any. Places in
//! records are those of `src/docs/format.md`.

use redb::{ReadableTable, TableDefinition, WriteTransaction};

pub(crate) const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
pub(crate) const STEPS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("steps");
pub(crate) const STRUCTURES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("structures");
pub(crate) const LEAVES: TableDefinition<'_, (u64, &[u8]), &[u8]> = TableDefinition::new("leaves");
pub(crate) const PACKS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("packs");
pub(crate) const PACK_REFS: TableDefinition<'_, u64, u64> = TableDefinition::new("pack_refs");

/// The encoded key paths of leaves of the state.
pub(crate) const W: &[u8] = b"\x03w\0";
pub(crate) const A: &[u8] = b"\x03a\0";
pub(crate) const B: &[u8] = b"\x03b\0";
pub(crate) const EMPTY: &[u8] = b"\x03empty\0";

/// Places in the archives of `src/docs/format.md`, and the sizes of their outermost structs.
const STEP_BYTES: usize = 90;
pub(crate) const STEP_PACKS: usize = 66;
const LEAF_BYTES: usize = 27;
const LEAF_SHARDS: usize = 19;
const SHARD_CHUNKS: usize = 16;
pub(crate) const CHUNK_OFFSET: usize = 8;
pub(crate) const CHUNK_HASH: usize = 25;

/// Replaces the row of a table by numbers, or removes it.
pub(crate) fn change(
    tx: &WriteTransaction,
    table: TableDefinition<'_, u64, &'static [u8]>,
    key: u64,
    change: impl FnOnce(&mut Vec<u8>),
) {
    let mut table = tx.open_table(table).unwrap();
    let mut row = table.get(key).unwrap().unwrap().value().to_vec();
    change(&mut row);
    table.insert(key, &row[..]).unwrap();
}

/// Gives a record the checksum that goes with its contents and its identity.
pub(crate) fn seal(record: &mut [u8], identity: &[u8]) {
    let crc = crc32fast::hash(&[&record[4..8], identity, &record[8..]].concat());
    record[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Changes the record of a step, given with the place of its outermost struct, and seals it.
pub(crate) fn change_step(tx: &WriteTransaction, step: u64, edit: impl FnOnce(&mut [u8], usize)) {
    change(tx, STEPS, step, |record| {
        let at = record.len() - STEP_BYTES;
        edit(record, at);
        seal(record, &step.to_le_bytes());
    });
}

/// Changes the record of a leaf of step 3, given with the places of its chunks, and seals it.
pub(crate) fn change_leaf(
    tx: &WriteTransaction,
    path: &[u8],
    edit: impl FnOnce(&mut [u8], &[usize]),
) {
    let mut table = tx.open_table(LEAVES).unwrap();
    let mut record = table.get((3, path)).unwrap().unwrap().value().to_vec();
    let chunks = chunks(&record);
    edit(&mut record, &chunks);
    seal(&mut record, &[&3u64.to_le_bytes(), path].concat());
    table.insert((3, path), &record[..]).unwrap();
}

/// The places of the chunks in a leaf record.
fn chunks(record: &[u8]) -> Vec<usize> {
    let shards = record.len() - LEAF_BYTES + LEAF_SHARDS;
    let shard = follow(record, shards);
    let chunks = follow(record, shard + SHARD_CHUNKS);
    let count = usize::try_from(u32_at(record, shard + SHARD_CHUNKS + 4)).unwrap();
    (0..count).map(|index| chunks + index * 41).collect()
}

/// Where the `Vec` at `at` has its elements.
pub(crate) fn follow(record: &[u8], at: usize) -> usize {
    let offset = u32_at(record, at).cast_signed();
    at.checked_add_signed(offset.try_into().unwrap()).unwrap()
}

pub(crate) fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(record[at..at + 4].try_into().unwrap())
}

pub(crate) fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(record[at..at + 8].try_into().unwrap())
}

pub(crate) fn put(record: &mut [u8], at: usize, value: u64) {
    record[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// The packs of step 3: the first, and how many.
pub(crate) fn packs(tx: &WriteTransaction) -> (u64, u64) {
    let table = tx.open_table(STEPS).unwrap();
    let record = table.get(3).unwrap().unwrap();
    let at = record.value().len() - STEP_BYTES + STEP_PACKS;
    let range = follow(record.value(), at);
    (u64_at(record.value(), range), u64_at(record.value(), range + 8))
}

/// Copies the record of a leaf of step 3 to another place, where it is sealed for that place.
pub(crate) fn copy_leaf(tx: &WriteTransaction, path: &[u8], step: u64, to: &[u8]) {
    let mut table = tx.open_table(LEAVES).unwrap();
    let mut record = table.get((3, path)).unwrap().unwrap().value().to_vec();
    seal(&mut record, &[&step.to_le_bytes(), to].concat());
    table.insert((step, to), &record[..]).unwrap();
}

pub(crate) fn remove_leaf(tx: &WriteTransaction, path: &[u8]) {
    tx.open_table(LEAVES).unwrap().remove((3, path)).unwrap();
}
