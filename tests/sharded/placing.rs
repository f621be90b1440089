//! What placers are given, and what they may not do.

use milepost::restore::{HostPlacer, Placer, RestoredLeaf, ShardToPlace};
use milepost::sharding::ShardingPolicy;
use milepost::{CheckpointStore, Result, SaveOptions};

use crate::arrays::gpus;
use crate::common;
use crate::restore::{registry, save_on_gpus};

#[test]
fn every_kind_of_element_is_placed() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("run")).unwrap();
    let zoo = common::zoo();
    store.save(1, &zoo, &SaveOptions::new()).unwrap();
    let reader = store.read(1).unwrap();
    let plan = reader.plan(None, &registry(gpus(3)), ShardingPolicy::Replicate).unwrap();
    let restored = plan.execute(&HostPlacer).unwrap();
    let back = restored.tree.map_leaves(|_, leaf| match leaf {
        RestoredLeaf::Value(leaf) => Ok(leaf),
        RestoredLeaf::Array(mut array) => {
            assert_eq!(array.shards.len(), 3);
            Ok(array.shards.pop().unwrap().array)
        }
    });
    assert_eq!(back.unwrap(), zoo);
}

#[test]
fn damage_and_errors_of_the_placer_say_which_leaf() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("run")).unwrap();
    save_on_gpus(&store);
    let reader = store.read(1).unwrap();
    let plan = reader.plan(None, &registry(gpus(2)), ShardingPolicy::AsSaved).unwrap();
    let error = plan.execute(&Short).unwrap_err();
    assert_eq!(error.path().unwrap().to_string(), "weights");
    assert!(error.to_string().contains("1 bytes of memory for a region of 24"), "{error}");
}

/// Gives too little memory.
struct Short;

impl Placer for Short {
    type Buffer = Vec<u8>;
    type Array = ();

    fn allocate(&self, _: &ShardToPlace<'_>) -> Result<Vec<u8>> {
        Ok(vec![0])
    }

    fn place(&self, _: &ShardToPlace<'_>, _: Vec<u8>) -> Result<Vec<()>> {
        Ok(Vec::new())
    }
}
