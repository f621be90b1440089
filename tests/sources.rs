//! Sources of leaves that fail, lie or panic in the middle of a save: the save is told, nothing of
//! it is there, and the same store goes on.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread::{self, ThreadId};

use milepost::{
    Checkpoint, CheckpointManager, CheckpointStore, DType, Error, ErrorKind, KeyPath, Leaf,
    LeafKind, LeafMeta, LeafSource, ManagerOptions, Region, Result, SaveOptions, Shape,
    StoreOptions, Tree,
};

/// What the source does when it is asked for its last rows.
#[derive(Debug, Clone, Copy)]
enum Manner {
    Fail,
    Panic,
    PanicAtOnce,
    BorrowTooLittle,
}

/// An array of 64 MiB, which is several waves, that is only given row by row.
struct Odd(Manner);

const ROWS: usize = 64;
const ROW_BYTES: usize = 1 << 20;

impl LeafSource for Odd {
    fn structure(&self) -> Result<Tree<LeafMeta>> {
        let meta = LeafMeta::array(DType::U8, Shape::new([ROWS, ROW_BYTES])?);
        Ok(Tree::map([("w", Tree::Leaf(meta))]))
    }

    fn read_region(&self, path: &KeyPath, region: &Region, out: &mut [u8]) -> Result<()> {
        let row = region.ranges()[0].start;
        match self.0 {
            Manner::Fail if row > 50 => {
                // An error of a source, as another store would give it.
                let folder = tempfile::tempdir().unwrap();
                let error: Error = CheckpointStore::open(folder.path().join("gone")).unwrap_err();
                assert_eq!(path.to_string(), "w");
                return Err(error);
            }
            Manner::Panic if row > 50 => panic!("the source is broken"),
            Manner::PanicAtOnce => panic!("the source is broken"),
            _ => out.fill(u8::try_from(row).unwrap()),
        }
        Ok(())
    }

    fn borrow(&self, _: &KeyPath) -> Option<&[u8]> {
        matches!(self.0, Manner::BorrowTooLittle).then_some(&[1, 2, 3])
    }
}

#[test]
fn a_source_that_breaks_costs_its_save_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    let scalar = |value: u8| Tree::map([("w", Tree::Leaf(Leaf::scalar(value)))]);
    let whole = scalar(1);
    let options = SaveOptions::new();
    store.save(1, &whole, &options).unwrap();
    for manner in [Manner::Fail, Manner::BorrowTooLittle] {
        let error = store.save_source(2, &Odd(manner), &options).unwrap_err();
        assert_eq!(error.step(), Some(2), "{error}");
        assert_eq!(error.path().unwrap().to_string(), "w", "{error}");
        if matches!(manner, Manner::BorrowTooLittle) {
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("gives 3 bytes"), "{error}");
        }
    }
    for manner in [Manner::Panic, Manner::PanicAtOnce] {
        let save = || store.save_source(2, &Odd(manner), &options);
        let panic = catch_unwind(AssertUnwindSafe(save)).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"the source is broken"));
        assert_eq!(store.all_steps().unwrap(), [1]);
        store.save(3, &whole, &options).unwrap();
        store.delete(3).unwrap();
    }
    assert_eq!(store.read(1).unwrap().restore().unwrap(), whole);
    store.save(4, &scalar(4), &options).unwrap();
    let report = store.verify().unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    assert_eq!(report.unfinished_packs, 0);
    assert_eq!(store.stats().unwrap().packs, 2);
}

/// A source whose description or contents no restore would accept.
struct Lying(LeafMeta, Vec<u8>);

impl LeafSource for Lying {
    fn structure(&self) -> Result<Tree<LeafMeta>> {
        Ok(Tree::Leaf(self.0.clone()))
    }

    fn read_region(&self, _: &KeyPath, _: &Region, out: &mut [u8]) -> Result<()> {
        out.copy_from_slice(&self.1);
        Ok(())
    }
}

/// These were saved, and could then not be restored.
#[test]
fn what_could_not_be_restored_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    let mut scalar = LeafMeta::array(DType::F32, Shape::new([3]).unwrap());
    scalar.kind = LeafKind::Scalar;
    let flags = LeafMeta::array(DType::Bool, Shape::new([2]).unwrap());
    let text = |kind| {
        let mut meta = LeafMeta::array(DType::U8, Shape::new([3]).unwrap());
        meta.kind = kind;
        meta
    };
    let (string, json) = (text(LeafKind::String), text(LeafKind::Json));
    for (source, says) in [
        (Lying(string, vec![b'a', 0xff, 0xfe]), "not UTF-8"),
        (Lying(json, b"{1}".to_vec()), "not JSON"),
        (Lying(scalar, vec![0; 12]), "a scalar can't be float32[3]"),
        (Lying(flags, vec![1, 7]), "neither 0 nor 1"),
    ] {
        let error = store.save_source(1, &source, &SaveOptions::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(store.latest_step().unwrap(), None);
}

/// A large leaf of a saved step is read region by region, also where those cut its chunks.
#[test]
fn a_saved_step_gives_any_region_of_a_large_leaf() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    let (rows, columns) = (300, 1700);
    let array = ndarray::Array2::from_shape_fn((rows, columns), |(row, column)| {
        u32::try_from(row * columns + column).unwrap()
    });
    let tree =
        Tree::map([("w", Tree::Leaf(Leaf::from(&array))), ("b", Tree::Leaf(Leaf::scalar(1u8)))]);
    store.save(1, &tree, &SaveOptions::new()).unwrap();
    let reader = store.read(1).unwrap();
    let path: KeyPath = "w".parse().unwrap();
    for (some_rows, some_columns) in [
        (0..rows, 0..columns),
        (299..300, 1699..1700),
        (17..290, 3..4),
        (100..200, 5..1690),
        (5..5, 0..3),
    ] {
        let part = array.slice(ndarray::s![some_rows.clone(), some_columns.clone()]);
        let mut out = vec![0; part.len() * 4];
        reader.read_region(&path, &Region::new([some_rows, some_columns]), &mut out).unwrap();
        let expected: Vec<u8> = part.iter().flat_map(|element| element.to_le_bytes()).collect();
        assert!(out == expected);
    }
    store.save_source(2, &reader, &SaveOptions::new()).unwrap();
    assert_eq!(store.read(2).unwrap().restore().unwrap(), tree);
    assert_eq!(store.step_info(2).unwrap().digest_hex(), reader.info().digest_hex());
}

/// It was cut into chunks, all of them at once, before the first was asked for: the process ran out of
/// memory.
#[test]
fn a_leaf_with_more_chunks_than_a_record_holds_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    let huge = LeafMeta::array(DType::U8, Shape::new([1 << 59]).unwrap());
    let error = store.save_source(1, &Lying(huge, Vec::new()), &SaveOptions::new()).unwrap_err();
    assert_eq!((error.kind(), error.step()), (ErrorKind::InvalidInput, Some(1)));
    assert!(error.to_string().contains("at most 16777216"), "{error}");
    // Of one that is just not too large the first chunk is asked for, and fails.
    let large = LeafMeta::array(DType::U8, Shape::new([1 << 42]).unwrap());
    let source = Failing(large);
    let error = store.save_source(1, &source, &SaveOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

/// Has nothing of what it says.
struct Failing(LeafMeta);

impl LeafSource for Failing {
    fn structure(&self) -> Result<Tree<LeafMeta>> {
        Ok(Tree::Leaf(self.0.clone()))
    }

    fn read_region(&self, path: &KeyPath, region: &Region, out: &mut [u8]) -> Result<()> {
        let empty: Tree<Leaf<'_>> = Tree::None;
        empty.read_region(path, region, out)
    }
}

/// Gives 16 MiB on request, and uses the store that saves it each time.
struct Reentrant<'s> {
    uses: &'s (dyn Fn() + Sync),
    threads: Mutex<HashSet<ThreadId>>,
}

impl LeafSource for Reentrant<'_> {
    fn structure(&self) -> Result<Tree<LeafMeta>> {
        Ok(Tree::Leaf(LeafMeta::array(DType::U8, Shape::new([16, 1 << 20])?)))
    }

    fn read_region(&self, _: &KeyPath, _: &Region, out: &mut [u8]) -> Result<()> {
        (self.uses)();
        self.threads.lock().unwrap().insert(thread::current().id());
        out.fill(7);
        Ok(())
    }
}

fn refused_in_a_save<T: std::fmt::Debug>(result: Result<T>) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.to_string().contains("in the middle of a save"), "{error}");
}

fn store_refuses_writes(store: &CheckpointStore) {
    refused_in_a_save(store.save(9, &1u8, &SaveOptions::new()));
    refused_in_a_save(store.delete(1));
    refused_in_a_save(store.rollback_to(1));
    refused_in_a_save(store.pin(1));
    refused_in_a_save(store.unpin(1));
    refused_in_a_save(store.compact());
    assert_eq!(store.read(1).unwrap().restore().unwrap(), 5u8.to_tree());
}

/// Where a thread that encodes beside the writer called it, each waited for the other.
#[test]
fn a_source_reads_the_store_that_saves_it_and_is_refused_to_write_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let threads = StoreOptions::new().threads(NonZeroUsize::new(4).unwrap());
    let path = folder.path().join("store");
    let store = CheckpointStore::open_or_create(&path, threads.clone()).unwrap();
    store.save(1, &5u8, &SaveOptions::new()).unwrap();
    let uses = || store_refuses_writes(&store);
    let source = Reentrant { uses: &uses, threads: Mutex::default() };
    store.save_source(2, &source, &SaveOptions::new()).unwrap();
    assert!(!source.threads.lock().unwrap().is_empty());
    store.delete(1).unwrap();
    assert_eq!(store.all_steps().unwrap(), [2]);
}

/// The thread that copies the source is not the one that writes, which waits for it.
#[test]
fn a_source_of_a_save_in_the_background_is_refused_to_write_too() {
    let folder = tempfile::tempdir().unwrap();
    // So little that the writer begins before all is copied.
    let options = ManagerOptions::new().staging_budget(8 << 20).unwrap();
    let manager = CheckpointManager::open(folder.path().join("store"), options).unwrap();
    manager.save_blocking(1, &5u8).unwrap();
    let uses = || {
        store_refuses_writes(manager.store());
        refused_in_a_save(manager.save(9, &1u8));
        refused_in_a_save(manager.save_blocking(9, &1u8));
        refused_in_a_save(manager.delete(1));
        refused_in_a_save(manager.compact());
        refused_in_a_save(manager.wait_until_finished());
        assert_eq!(manager.restore(1).unwrap(), 5u8.to_tree());
    };
    let source = Reentrant { uses: &uses, threads: Mutex::default() };
    let handle = manager.save_source(2, &source, &SaveOptions::new()).unwrap();
    assert!(handle.wait().unwrap().is_saved());
    manager.delete(1).unwrap();
    assert_eq!(manager.all_steps().unwrap(), [2]);
}
