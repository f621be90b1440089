//! Places for values that are saved as another type and may not fit when they come back.

use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;

use super::{Expected, Target, no_value};
use crate::dtype::{Element, resize};
use crate::error::{Error, Result};
use crate::tree::meta::{LeafKind, LeafMeta};

/// Elements of `T` that are saved as an `S`.
pub(super) struct ConvertedSlice<'a, T, S> {
    pub(super) slots: &'a mut [T],
    pub(super) meta: LeafMeta,
    pub(super) stored: PhantomData<fn() -> S>,
}

impl<T: TryFrom<S> + Send, S: Element + fmt::Display> Target for ConvertedSlice<'_, T, S> {
    fn expected(&self) -> Expected {
        Expected::exactly(self.meta.clone())
    }

    fn finish(&mut self, contents: &[u8]) -> Result<()> {
        convert(self.slots, contents)
    }
}

/// The same with whatever length was saved.
pub(super) struct ConvertedVec<'a, T, S> {
    pub(super) slots: &'a mut Vec<T>,
    pub(super) stored: PhantomData<fn() -> S>,
}

impl<T, S> Target for ConvertedVec<'_, T, S>
where
    T: TryFrom<S> + Clone + Default + Send,
    S: Element + fmt::Display,
{
    fn expected(&self) -> Expected {
        Expected::any_length(LeafKind::Array, S::DTYPE)
    }

    fn prepare(&mut self, saved: &LeafMeta) -> Result<()> {
        resize(self.slots, saved.shape.elements())
    }

    fn finish(&mut self, contents: &[u8]) -> Result<()> {
        convert(self.slots, contents)
    }
}

fn convert<T: TryFrom<S>, S: Element + fmt::Display>(
    slots: &mut [T],
    contents: &[u8],
) -> Result<()> {
    for (slot, bytes) in slots.iter_mut().zip(contents.chunks_exact(size_of::<S>())) {
        let value = S::from_bytes(bytes).ok_or_else(|| no_value(S::DTYPE))?;
        *slot = T::try_from(value).map_err(|_| {
            Error::new(
                crate::error::ErrorKind::Mismatch,
                format!("the saved value {value} is no {} of this machine", type_name::<T>()),
            )
            .advise("restore it as an integer of 64 bits")
        })?;
    }
    Ok(())
}
