//! Every limit of milepost, in one place, each with its reason.
//!
//! Limits hold in both directions: a save that exceeds one is refused before anything is
//! written, and a record read from a file that claims to exceed one is damaged. So nothing read
//! from a file can make a reader allocate without bound.

/// The deepest tree, in key path segments from the root to a leaf.
///
/// Walks over a tree recurse once per level; 128 levels fit any thread's stack, and are what
/// `serde_json` accepts for JSON.
pub const MAX_TREE_DEPTH: usize = 128;

/// The longest name in a key path, in bytes of UTF-8.
pub const MAX_KEY_NAME_BYTES: usize = 4096;

/// The longest encoded key path, in bytes: a database key has to stay well below a page class.
pub const MAX_PATH_BYTES: usize = 32 * 1024;

/// The most dimensions of one array, as in `NumPy` 2.
pub const MAX_DIMENSIONS: usize = 64;

/// The most devices of a mesh: more than the largest machines have, and few enough to be listed.
pub const MAX_MESH_DEVICES: usize = 1 << 20;

/// The most ranks that share a file: more than one machine has, and few enough to be named.
pub const MAX_RANKS: u32 = 1 << 12;

/// The most leaves, and the most tree nodes, of one step.
pub const MAX_LEAVES: usize = 1 << 24;

/// The largest array in bytes. Sums of a few such sizes still fit an `i64`.
pub const MAX_LEAF_BYTES: u64 = 1 << 60;

/// The largest chunk in bytes, raw or stored: one pack of the largest class.
pub const MAX_CHUNK_BYTES: usize = MAX_PACK_BYTES;

/// The largest pack in bytes.
///
/// A redb value with a `u64` key starts 16 bytes into its page, and pages are powers of two times
/// 4096 bytes: this pack fills a 512 KiB page to the last byte, and stays in a core's cache between
/// being read, checked and copied out.
pub const MAX_PACK_BYTES: usize = (512 << 10) - PACK_OVERHEAD_BYTES;

/// What redb needs of a page before a value with a `u64` key begins: 4 bytes of page header,
/// 4 bytes of end offset, 8 bytes of key.
pub const PACK_OVERHEAD_BYTES: usize = 16;

/// The smallest page of redb, which packs that are smaller share.
pub const MIN_PAGE_BYTES: usize = 4096;

/// The smallest pack that one leaf fills alone. What remains of a leaf below this size shares a
/// pack with other leaves.
pub const MIN_OWN_PACK_BYTES: usize = (128 << 10) - PACK_OVERHEAD_BYTES;

/// The parts that what remains of a leaf is cut into: four fill a shared pack, and little of it is
/// left unused where the last part of one leaf meets the first of the next.
pub const TAIL_CHUNK_BYTES: usize = (32 << 10) - 16;

/// The raw size of a chunk that is to be compressed: its planes are long enough for LZ4 to find what
/// repeats, and it stays in a core's cache with them.
pub const COMPRESSED_CHUNK_BYTES: usize = (256 << 10) - PACK_OVERHEAD_BYTES;

/// The smallest memory that a manager can copy borrowed leaves into: while the writer has some of its
/// blocks, which hold a chunk of the largest size, others are filled.
pub const MIN_STAGING_BUDGET_BYTES: usize = 2 << 20;

/// Chunks begin at a multiple of this in their pack, so that every element type is aligned.
pub const CHUNK_ALIGN_BYTES: usize = 16;

/// The largest record (step, structure or leaf), in bytes: a leaf of 1 TiB in 512 KiB chunks has
/// a record of about 90 MiB.
pub const MAX_RECORD_BYTES: usize = 1 << 30;

/// The most chunks of one leaf: their record stays below the largest. A raw leaf may have 8 TiB, one
/// that is compressed 4 TiB.
pub const MAX_LEAF_CHUNKS: usize = 1 << 24;

/// The most step metrics of one step.
pub const MAX_METRICS: usize = 4096;

/// The largest custom metadata of one step, in bytes of JSON.
pub const MAX_CUSTOM_METADATA_BYTES: usize = 16 << 20;

/// The deepest JSON value, in nested arrays and objects: what `serde_json` reads back.
pub const MAX_JSON_DEPTH: usize = 127;

/// The most differences that one error message spells out; the rest is counted.
pub const MAX_DIFFERENCES_SHOWN: usize = 20;

/// The most arrays that one error message names because of their shardings; the rest is counted.
pub const MAX_REFUSALS_SHOWN: usize = 1_000;
