//! How bytes get onto a device.

use crate::dtype::zeroed;
use crate::error::Result;
use crate::path::KeyPath;
use crate::shape::Region;
use crate::sharding::Device;
use crate::tree::{FreshLeaf, Leaf, LeafMeta};

/// Puts the regions of arrays on devices: what a framework implements to restore straight onto its own.
/// [`HostPlacer`] puts them into ordinary memory.
///
/// Each region is asked for once per process, and is then given to all of its devices. The methods are
/// called from several threads.
pub trait Placer: Sync {
    /// Memory of the host that a region is read into, such as pinned memory.
    type Buffer: AsMut<[u8]> + Send;
    /// A region of an array on a device.
    type Array: Send;

    /// Memory for a region, of exactly [`ShardToPlace::size_bytes`] bytes. What is in it does not matter.
    ///
    /// # Errors
    /// An error ends the restore, and is what it returns.
    fn allocate(&self, shard: &ShardToPlace<'_>) -> Result<Self::Buffer>;

    /// Puts a region on each of its devices, in their order. `contents` are its elements in C order, little-endian,
    /// and have been checked.
    ///
    /// # Errors
    /// An error ends the restore, and is what it returns.
    fn place(&self, shard: &ShardToPlace<'_>, contents: Self::Buffer) -> Result<Vec<Self::Array>>;
}

/// A region of an array and where it is to go.
#[derive(Debug, Clone)]
pub struct ShardToPlace<'p> {
    pub(super) path: &'p KeyPath,
    pub(super) meta: &'p LeafMeta,
    pub(super) region: &'p Region,
    pub(super) devices: Vec<&'p Device>,
}

impl ShardToPlace<'_> {
    /// The array.
    pub fn path(&self) -> &KeyPath {
        self.path
    }

    /// What the whole array is, with the sharding that it gets.
    pub fn meta(&self) -> &LeafMeta {
        self.meta
    }

    /// The region of the array. It may be empty.
    pub fn region(&self) -> &Region {
        self.region
    }

    /// The devices of this process that hold it, at least one.
    pub fn devices(&self) -> &[&Device] {
        &self.devices
    }

    /// The size of the region in bytes.
    pub fn size_bytes(&self) -> usize {
        // A region of an array that has a size.
        self.region.elements() * self.meta.dtype.size_bytes()
    }
}

/// Puts regions into ordinary memory, as arrays of their own element type, which become ndarrays without
/// a copy. Replicas share it.
#[derive(Debug, Clone, Copy, Default)]
pub struct HostPlacer;

/// Memory of a [`HostPlacer`].
pub struct HostBuffer {
    array: FreshLeaf,
    /// For element types whose memory can't be filled with any bytes.
    staged: Vec<u8>,
}

impl Placer for HostPlacer {
    type Buffer = HostBuffer;
    type Array = Leaf<'static>;

    fn allocate(&self, shard: &ShardToPlace<'_>) -> Result<HostBuffer> {
        let meta = LeafMeta::array(shard.meta.dtype, shard.region.shape());
        let mut array = FreshLeaf::new(meta)?;
        let staged = match array.memory_mut() {
            Some(_) => Vec::new(),
            None => zeroed(shard.size_bytes())?,
        };
        Ok(HostBuffer { array, staged })
    }

    fn place(&self, shard: &ShardToPlace<'_>, contents: HostBuffer) -> Result<Vec<Leaf<'static>>> {
        let HostBuffer { mut array, staged } = contents;
        if array.memory_mut().is_none() {
            array.assign(&staged)?;
        }
        Ok(vec![array.into_leaf()?; shard.devices.len()])
    }
}

impl AsMut<[u8]> for HostBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        self.array.memory_mut().unwrap_or(&mut self.staged)
    }
}

impl std::fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostBuffer").finish_non_exhaustive()
    }
}
