//! Leaves in new memory.

use super::{Expected, Target, assign, utf8};
use crate::dtype::{Element, with_element, zeroed};
use crate::error::Result;
use crate::tree::data::Data;
use crate::tree::leaf::Leaf;
use crate::tree::meta::{LeafKind, LeafMeta};

/// A leaf in new memory of its own element type, so that it becomes an ndarray without a copy.
pub(crate) struct FreshLeaf {
    meta: LeafMeta,
    memory: Box<dyn FreshMemory>,
}

trait FreshMemory: Send {
    fn bytes_mut(&mut self) -> Option<&mut [u8]>;
    fn assign(&mut self, contents: &[u8]) -> Result<()>;
    fn into_data(self: Box<Self>) -> Data<'static>;
}

impl<T: Element> FreshMemory for Vec<T> {
    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        T::as_bytes_mut(self)
    }

    fn assign(&mut self, contents: &[u8]) -> Result<()> {
        assign(self.iter_mut(), contents)
    }

    fn into_data(self: Box<Self>) -> Data<'static> {
        Data::shared(*self)
    }
}

impl FreshLeaf {
    /// A leaf like `meta`, in one piece whatever its sharding.
    pub(crate) fn new(meta: LeafMeta) -> Result<Self> {
        let meta = LeafMeta { sharding: None, ..meta };
        let elements = meta.shape.elements();
        let memory: Box<dyn FreshMemory> = with_element!(meta.dtype, E => {
            Box::new(zeroed::<E>(elements)?)
        });
        Ok(Self { meta, memory })
    }

    /// Its memory, if it may be filled with any bytes.
    pub(crate) fn memory_mut(&mut self) -> Option<&mut [u8]> {
        self.memory.bytes_mut()
    }

    /// Takes the contents, where the memory may not.
    pub(crate) fn assign(&mut self, contents: &[u8]) -> Result<()> {
        self.memory.assign(contents)
    }

    pub(crate) fn into_leaf(self) -> Result<Leaf<'static>> {
        let leaf = Leaf::from_parts(self.meta, self.memory.into_data());
        if leaf.meta().kind == LeafKind::String {
            utf8(leaf.contents().unwrap_or_default())?;
        }
        Ok(leaf)
    }
}

pub(super) struct FreshTarget<'a>(pub(super) &'a mut FreshLeaf);

impl Target for FreshTarget<'_> {
    fn expected(&self) -> Expected {
        Expected::exactly(self.0.meta.clone())
    }

    fn memory(&mut self) -> Option<&mut [u8]> {
        self.0.memory_mut()
    }

    fn finish(&mut self, contents: &[u8]) -> Result<()> {
        self.0.assign(contents)
    }
}

pub(super) struct LeafTarget<'a, 'l> {
    pub(super) leaf: &'a mut Leaf<'l>,
    pub(super) fresh: Option<FreshLeaf>,
}

impl Target for LeafTarget<'_, '_> {
    fn expected(&self) -> Expected {
        Expected::like(self.leaf.meta())
    }

    fn prepare(&mut self, saved: &LeafMeta) -> Result<()> {
        self.fresh = Some(FreshLeaf::new(saved.clone())?);
        Ok(())
    }

    fn memory(&mut self) -> Option<&mut [u8]> {
        self.fresh.as_mut()?.memory_mut()
    }

    fn finish(&mut self, contents: &[u8]) -> Result<()> {
        match &mut self.fresh {
            Some(fresh) => fresh.assign(contents),
            None => Ok(()),
        }
    }

    fn settle(&mut self) -> Result<()> {
        if let Some(fresh) = self.fresh.take() {
            *self.leaf = fresh.into_leaf()?;
        }
        Ok(())
    }
}
