//! A reader made from `src/docs/format.md` and redb alone. What it reads is what milepost reads,
//! down to the checksums, hashes and digests, so the page is true and says enough.

mod archive;
#[path = "../common/mod.rs"]
mod common;
mod planes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use milepost::{CheckpointStore, Compression, Leaf, SaveOptions, StoreOptions, Tree};
use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use twox_hash::xxhash3_128;

use archive::{Archive, crc32, payload, structure};

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const STEPS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("steps");
const STRUCTURES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("structures");
const LEAVES: TableDefinition<'_, (u64, &[u8]), &[u8]> = TableDefinition::new("leaves");
const PACKS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("packs");
const PACK_REFS: TableDefinition<'_, u64, u64> = TableDefinition::new("pack_refs");

/// In the order of their codes, which begin at 1.
const KINDS: &str = "array scalar string bytes json";
const DTYPES: &str = "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 \
    float32 float64 float8_e4m3fn float8_e5m2 complex64 complex128";

const LARGEST_PACK: usize = 524_272;
const CHUNK_BYTES: usize = 41;
const METRIC_BYTES: usize = 16;
const PACK_RANGE_BYTES: usize = 16;

/// Sums over the leaves of one step.
#[derive(Default)]
struct Sums {
    leaves: u64,
    chunks: u64,
    raw_bytes: u64,
    stored_bytes: u64,
    packs: BTreeSet<u64>,
    /// Chunks that go on in the next pack.
    continued: u64,
    digest: xxhash3_128::Hasher,
}

impl Sums {
    fn digest(&mut self, part: &[u8]) {
        self.digest.write(&u64::try_from(part.len()).unwrap().to_le_bytes());
        self.digest.write(part);
    }
}

/// The kind, element type, shape and contents of a leaf.
type LeafParts = (u8, u8, Vec<u64>, Vec<u8>);

/// The same of a leaf that milepost has read.
fn parts(leaf: &Leaf<'_>) -> LeafParts {
    let code = |names: &str, name| {
        let place = names.split(' ').position(|known| known == name);
        u8::try_from(place.unwrap() + 1).unwrap()
    };
    let meta = leaf.meta();
    let shape = meta.shape.lengths().iter();
    (
        code(KINDS, meta.kind.name()),
        code(DTYPES, meta.dtype.name()),
        shape.map(|length| u64::try_from(*length).unwrap()).collect(),
        leaf.contents().unwrap().to_vec(),
    )
}

/// The rows of all tables.
struct Rows {
    meta: BTreeMap<String, Vec<u8>>,
    steps: BTreeMap<u64, Vec<u8>>,
    structures: BTreeMap<u64, Vec<u8>>,
    leaves: BTreeMap<(u64, Vec<u8>), Vec<u8>>,
    packs: BTreeMap<u64, Vec<u8>>,
    pack_refs: BTreeMap<u64, u64>,
}

impl Rows {
    fn read(path: &Path) -> Self {
        let mut builder = redb::Builder::new();
        builder.set_concurrency_mode(redb::ConcurrencyMode::SingleWriter);
        let tx = builder.open_read_only(path).unwrap().begin_read().unwrap();
        let by_number = |table: TableDefinition<'_, u64, &'static [u8]>| {
            let table = tx.open_table(table).unwrap();
            let rows = table.iter().unwrap().map(Result::unwrap);
            rows.map(|(key, row)| (key.value(), row.value().to_vec())).collect()
        };
        let (meta, leaves) = (tx.open_table(META).unwrap(), tx.open_table(LEAVES).unwrap());
        let refs = tx.open_table(PACK_REFS).unwrap();
        let meta = meta.iter().unwrap().map(Result::unwrap);
        let refs = refs.iter().unwrap().map(Result::unwrap);
        let leaves = leaves.iter().unwrap().map(Result::unwrap).map(|(key, row)| {
            let (step, path) = key.value();
            ((step, path.to_vec()), row.value().to_vec())
        });
        Self {
            meta: meta.map(|(key, row)| (key.value().to_owned(), row.value().to_vec())).collect(),
            steps: by_number(STEPS),
            structures: by_number(STRUCTURES),
            leaves: leaves.collect(),
            packs: by_number(PACKS),
            pack_refs: refs.map(|(pack, count)| (pack.value(), count.value())).collect(),
        }
    }

    /// The pack mark; the other entries of `meta` are looked at too.
    fn mark(&self) -> u64 {
        assert_eq!(self.meta["format"], 1u32.to_le_bytes());
        assert_eq!((self.meta["store_id"].len(), self.meta["created_unix_ns"].len()), (16, 8));
        assert_eq!(self.meta.len(), 4);
        let mark = payload(&self.meta["pack_mark"], 4, b"pack_mark");
        u64::from_le_bytes(mark.try_into().unwrap())
    }

    /// A leaf of a step, checked and added to `sums`.
    fn leaf(&self, step: u64, path: &[u8], sums: &mut Sums) -> LeafParts {
        let record = &self.leaves[&(step, path.to_vec())];
        let identity = [&step.to_le_bytes(), path].concat();
        let archive = Archive(payload(record, 3, &identity));
        let leaf = archive.outermost(27);
        let (kind, dtype, shape) = (archive.0[leaf], archive.0[leaf + 1], archive.u64s(leaf + 2));
        assert_eq!(archive.0[leaf + 10], 0, "there is no sharding");
        let [shard] = archive.elements(leaf + 19, 24)[..] else {
            panic!("there is one shard");
        };
        assert_eq!(archive.u64s(shard), vec![0; shape.len()]);
        assert_eq!(archive.u64s(shard + 8), shape);
        sums.leaves += 1;
        sums.digest(path);
        sums.digest(&[kind, dtype]);
        for length in &shape {
            sums.digest(&length.to_le_bytes());
        }
        let mut contents = Vec::new();
        for (index, at) in (0u32..).zip(archive.elements(shard + 16, CHUNK_BYTES)) {
            contents.extend(self.chunk(&archive, at, (path, index, dtype), sums));
        }
        (kind, dtype, shape, contents)
    }

    /// The raw bytes of a chunk.
    fn chunk(
        &self,
        archive: &Archive,
        at: usize,
        (path, index, dtype): (&[u8], u32, u8),
        sums: &mut Sums,
    ) -> Vec<u8> {
        let pack = archive.u64(at);
        let (offset, stored_len) = (archive.usize(at + 8), archive.usize(at + 12));
        let (raw_len, codec) = (archive.usize(at + 16), archive.0[at + 24]);
        sums.packs.insert(pack);
        let mut stored = self.packs[&pack][offset..].to_vec();
        if stored.len() < stored_len {
            assert_eq!(offset + stored.len(), LARGEST_PACK, "only the largest packs are continued");
            sums.packs.insert(pack + 1);
            sums.continued += 1;
            stored.extend(&self.packs[&(pack + 1)]);
        }
        let stored = &stored[..stored_len];
        let crc = crc32(&[
            &u32::try_from(path.len()).unwrap().to_le_bytes(),
            path,
            &0u32.to_le_bytes(),
            &index.to_le_bytes(),
            &[dtype, codec],
            &archive.array::<4>(at + 16),
            &archive.array::<4>(at + 12),
            stored,
        ]);
        assert_eq!(archive.u32(at + 20), crc);
        assert_eq!(offset % 16, 0);
        let raw = match codec {
            0 => stored.to_vec(),
            1 => lz4_flex::block::decompress(stored, raw_len).unwrap(),
            2..=4 => planes::decode(codec, dtype, stored, raw_len),
            codec => panic!("a chunk has codec {codec}"),
        };
        assert_eq!(raw.len(), raw_len);
        let hash = xxhash3_128::Hasher::oneshot(&raw).to_le_bytes();
        assert_eq!(archive.array(at + 25), hash);
        sums.chunks += 1;
        sums.raw_bytes += u64::from(archive.u32(at + 16));
        sums.stored_bytes += u64::from(archive.u32(at + 12));
        sums.digest(&hash);
        raw
    }
}

/// The step record, against what milepost says and what the leaves sum up to. Returns its packs.
fn check_step(step: u64, record: &[u8], info: &milepost::StepInfo, sums: &Sums) -> Vec<u64> {
    let archive = Archive(payload(record, 1, &step.to_le_bytes()));
    let at = archive.outermost(90);
    let metric = |at: usize| (archive.string(at), archive.u64(at + 8));
    let metrics = archive.elements(at + 16, METRIC_BYTES).into_iter().map(metric);
    let expected = info.metrics.iter().map(|(name, value)| (name.clone(), value.to_bits()));
    assert!(metrics.eq(expected));
    let committed = info.committed_at.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(u128::from(archive.u64(at + 8)), committed.as_nanos());
    assert!(archive.u64(at) <= archive.u64(at + 8), "a save begins before it ends");
    let metadata = match archive.0[at + 24] {
        0 => None,
        tag => Some((tag, serde_json::from_str(&archive.string(at + 25)).unwrap())),
    };
    assert_eq!(metadata, info.custom_metadata.clone().map(|value| (1, value)));
    assert_eq!(archive.0[at + 33], u8::from(info.pinned));
    let counts = [34, 42, 50, 58].map(|field| archive.u64(at + field));
    assert_eq!(counts, [sums.leaves, sums.chunks, sums.raw_bytes, sums.stored_bytes]);
    assert_eq!(archive.array(at + 74), sums.digest.finish_128().to_le_bytes());
    assert_eq!(archive.array(at + 74), info.digest);
    let ranges = archive.elements(at + 66, PACK_RANGE_BYTES).into_iter();
    ranges.flat_map(|at| archive.u64(at)..archive.u64(at) + archive.u64(at + 8)).collect()
}

/// Reads the whole file and compares it with what milepost reads. Returns how many chunks are in two
/// packs.
fn check(path: &Path, steps: &[u64]) -> u64 {
    let rows = Rows::read(path);
    let store = CheckpointStore::open_read_only(path).unwrap();
    let (mut refs, mut leaves, mut continued) = (BTreeMap::<u64, u64>::new(), 0, 0);
    assert!(rows.steps.keys().eq(steps) && rows.structures.keys().eq(steps));
    for (&step, record) in &rows.steps {
        let reader = store.read(step).unwrap();
        let archive = Archive(payload(&rows.structures[&step], 2, &step.to_le_bytes()));
        let mut sums = Sums::default();
        let found = structure(&archive).map_leaves(|_, path| Ok(rows.leaf(step, &path, &mut sums)));
        let expected = reader.restore().unwrap().map_leaves(|_, leaf| Ok(parts(&leaf)));
        assert!(found.unwrap() == expected.unwrap(), "step {step} is read differently");
        let packs = check_step(step, record, reader.info(), &sums);
        assert!(sums.packs.iter().eq(&packs), "the step lists the packs of its chunks");
        for pack in packs {
            *refs.entry(pack).or_default() += 1;
        }
        leaves += sums.leaves;
        continued += sums.continued;
    }
    assert_eq!(rows.pack_refs, refs);
    assert!(rows.packs.keys().eq(refs.keys()), "every pack is used");
    assert!(refs.keys().all(|pack| (1..=rows.mark()).contains(pack)));
    assert_eq!(u64::try_from(rows.leaves.len()).unwrap(), leaves, "no leaf is of no step");
    continued
}

#[test]
fn the_page_is_enough_to_read_the_golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for name in ["v1", "v1-lz4", "v1-byte-planes", "v1-bit-planes", "v1-raised-bit-planes"] {
        check(&folder.join(name).with_extension("milepost"), &[7, u64::MAX]);
    }
}

/// Chunks of every page class, strings of every form, a step that is gone and one replaced.
#[test]
fn the_page_is_enough_to_read_what_is_written_today() {
    let folder = tempfile::tempdir().unwrap();
    for (name, compression) in common::COMPRESSIONS {
        let path = folder.path().join(name);
        let options = StoreOptions::new().compression(compression);
        let store = CheckpointStore::create_with(&path, options).unwrap();
        let numbers: Vec<u32> = (0..300_000).map(|number| number / 7).collect();
        let numbers = Tree::Leaf(Leaf::from_vec(numbers, [3, 100_000]).unwrap());
        let long_name =
            "a struct with a name of more than sixty-three bytes, also counted in words";
        let gappy = Leaf::from_vec(common::gappy(1, 300_000), [300_000]).unwrap();
        let leaves = [("z", numbers), ("a", common::zoo()), ("gappy", Tree::Leaf(gappy))];
        let state = Tree::record(long_name, leaves);
        let metrics = [0, 1, 7, 8, 9, 63, 64, 65, 255, 256, 300, 4000];
        let metrics = metrics.map(|length| ("m".repeat(length), f64::NAN));
        let metadata = serde_json::json!({"note": "x".repeat(70_000)});
        let long = SaveOptions::new().metrics(metrics).custom_metadata(metadata).pin();
        store.save(1, &state, &SaveOptions::new()).unwrap();
        store.save(2, &state, &SaveOptions::new()).unwrap();
        store.save(1, &state, &long.replace()).unwrap();
        store.delete(2).unwrap();
        store.save(3, &Tree::<Leaf<'static>>::None, &SaveOptions::new()).unwrap();
        drop(store);
        let continued = check(&path, &[1, 3]);
        assert_eq!(continued > 0, compression != Compression::None, "{name}: {continued}");
    }
}
