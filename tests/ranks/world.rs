//! Ranks with a device each, and a state that is spread over them.

use std::path::{Path, PathBuf};

use milepost::sharding::{Device, Mesh, NamedSharding, PartitionSpec, Platform, Sharding};
use milepost::{
    CheckpointStore, DType, Leaf, Rank, Region, Result, SaveOptions, SaveReport, StoreOptions, Tree,
};
use tempfile::TempDir;

use super::common::noise;

#[track_caller]
pub(crate) fn check(store: &CheckpointStore) {
    let report = store.verify().unwrap();
    assert!(report.is_complete() && report.faults.is_empty(), "{:?}", report.faults);
    assert_eq!(report.unfinished_packs, 0);
}

#[track_caller]
pub(crate) fn open(path: &Path, rank: Rank, options: StoreOptions) -> CheckpointStore {
    CheckpointStore::open_as_rank(path, rank, options).unwrap()
}

/// An array of `u32`.
pub(crate) fn whole(lengths: &[usize], seed: u32) -> Leaf<'static> {
    Leaf::from_vec(noise(seed, lengths.iter().product()), lengths).unwrap()
}

/// A region of an array of `u32`.
pub(crate) fn cut(array: &Leaf<'_>, region: &Region) -> Leaf<'static> {
    let array = array.as_array::<u32>().unwrap();
    let ranges = region.ranges();
    let cut = array.slice_each_axis(|axis| {
        let range = &ranges[axis.axis.index()];
        milepost::ndarray::Slice::from(range.clone())
    });
    cut.to_owned().into()
}

pub(crate) struct World {
    pub(crate) path: PathBuf,
    pub(crate) size: u32,
    pub(crate) _folder: TempDir,
}

impl World {
    pub(crate) fn new(size: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { path: folder.path().join("run.milepost"), size, _folder: folder }
    }

    pub(crate) fn rank(&self, number: u32) -> Rank {
        Rank::new(number, self.size).unwrap()
    }

    pub(crate) fn open(&self, number: u32) -> CheckpointStore {
        open(&self.path, self.rank(number), StoreOptions::new())
    }

    pub(crate) fn open_all(&self) -> Vec<CheckpointStore> {
        (0..self.size).map(|number| self.open(number)).collect()
    }

    pub(crate) fn devices(&self) -> Vec<Device> {
        (0..self.size).map(|number| Device::new(Platform::Cuda, number)).collect()
    }

    fn shardings(&self) -> [(&'static str, Vec<usize>, Sharding); 3] {
        let size = usize::try_from(self.size).unwrap();
        let over = |spec: PartitionSpec| {
            let mesh = Mesh::new(self.devices(), [("x", size)]).unwrap();
            NamedSharding::new(mesh, spec).unwrap().into()
        };
        [
            ("w", vec![9, 7], over(PartitionSpec::new([Some("x")]))),
            ("large", vec![300, 2000], over(PartitionSpec::new([None, Some("x")]))),
            ("same", vec![11], over(PartitionSpec::new([None::<String>]))),
        ]
    }

    /// The arrays of a step, and what is not sharded.
    fn tree<'a>(
        &self,
        seed: u32,
        mut leaf: impl FnMut(Leaf<'static>, Sharding) -> Leaf<'a>,
    ) -> Tree<Leaf<'a>> {
        let arrays = self.shardings().map(|(name, lengths, sharding)| {
            (
                name,
                Tree::Leaf(leaf(
                    whole(&lengths, seed + u32::try_from(lengths.len()).unwrap()),
                    sharding,
                )),
            )
        });
        let others = [
            ("step", Tree::Leaf(Leaf::scalar(u64::from(seed)))),
            ("names", Tree::list([Tree::Leaf(Leaf::string(format!("step {seed}"))), Tree::None])),
        ];
        Tree::map(arrays.into_iter().chain(others))
    }

    /// What is read of the step with the state of `seed`.
    pub(crate) fn whole(&self, seed: u32) -> Tree<Leaf<'static>> {
        self.tree(seed, |array, _| array)
    }

    /// The same as one process gives it.
    pub(crate) fn given_whole(&self, seed: u32) -> Tree<Leaf<'static>> {
        self.tree(seed, |array, sharding| {
            let layout = sharding.layout(&array.meta().shape).unwrap();
            let devices = self.devices();
            let shards = devices.into_iter().map(|device| {
                let shard = cut(&array, &layout.region_of(&device).unwrap());
                (device, shard)
            });
            Leaf::from_shards(array.meta().shape.lengths(), sharding.clone(), shards).unwrap()
        })
    }

    /// What a rank gives to the step with the state of `seed`.
    pub(crate) fn state(&self, rank: Rank, seed: u32) -> Tree<Leaf<'static>> {
        self.local(seed, |device| *device == self.devices()[rank.number() as usize])
    }

    /// What a process with all devices gives.
    pub(crate) fn state_of_all(&self, seed: u32) -> Tree<Leaf<'static>> {
        self.local(seed, |_| true)
    }

    fn local(&self, seed: u32, has: impl Fn(&Device) -> bool) -> Tree<Leaf<'static>> {
        self.tree(seed, |array, sharding| {
            let layout = sharding.layout(&array.meta().shape).unwrap();
            let own = self.devices().into_iter().filter(|device| has(device)).map(|device| {
                let shard = cut(&array, &layout.region_of(&device).unwrap());
                (device, shard)
            });
            let lengths = array.meta().shape.lengths().to_vec();
            Leaf::from_local_shards(DType::U32, lengths, sharding.clone(), own).unwrap()
        })
    }

    /// Saves what the rank of `store` gives to `step`.
    pub(crate) fn save(&self, store: &CheckpointStore, step: u32) -> Result<SaveReport> {
        store.save(step.into(), &self.state(store.rank().unwrap(), step), &SaveOptions::new())
    }

    pub(crate) fn save_all(&self, stores: &[CheckpointStore], step: u32) -> SaveReport {
        let reports = stores.iter().map(|store| self.save(store, step).unwrap());
        reports.last().unwrap()
    }
}
