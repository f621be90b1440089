//! The workload of a spec: a manifest, and a file with the contents of the leaves.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use milepost::{DType, Leaf, Tree};
use serde::Deserialize;

use crate::common::state::{Array, HandOver, State, Values, key_path};

#[derive(Deserialize)]
pub(crate) struct Manifest {
    /// The name of the data file, in the same folder.
    file: String,
    pub(crate) logical_bytes: u64,
    pub(crate) leaves: Vec<Entry>,
}

/// A leaf.
#[derive(Deserialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    dtype: String,
    shape: Vec<usize>,
    offset: u64,
    pub(crate) nbytes: u64,
    crc32: u32,
    changing: bool,
}

impl Manifest {
    pub(crate) fn read(workload: &Path) -> Result<Self, Box<dyn Error>> {
        let file = BufReader::new(File::open(workload.join("manifest.json"))?);
        Ok(serde_json::from_reader(file)?)
    }

    pub(crate) fn leaf(&self, name: &str) -> Result<&Entry, Box<dyn Error>> {
        let entry = self.leaves.iter().find(|entry| entry.name == name);
        entry.ok_or_else(|| format!("the workload has no leaf {name:?}").into())
    }

    /// The state at step 0.
    pub(crate) fn load(
        &self,
        workload: &Path,
        hand_over: HandOver,
    ) -> Result<State, Box<dyn Error>> {
        let mut file = File::open(workload.join(&self.file))?;
        let mut state = State::new();
        for entry in &self.leaves {
            file.seek(SeekFrom::Start(entry.offset))?;
            let mut contents = file.by_ref().take(entry.nbytes);
            let values = Values::read(entry.dtype()?, &entry.shape, &mut contents)?;
            let array = Array { values, changes: entry.changing, hand_over };
            state.insert(&entry.name, array);
        }
        Ok(state)
    }

    /// What differs in `restored` from step 0.
    pub(crate) fn differences(
        &self,
        restored: &Tree<Leaf<'static>>,
    ) -> Result<Vec<String>, Box<dyn Error>> {
        let mut differences = Vec::new();
        for entry in &self.leaves {
            let difference = match restored.get(&key_path(&entry.name)) {
                Some(Tree::Leaf(leaf)) => entry.difference(leaf)?,
                _ => Some("missing"),
            };
            differences.extend(difference.map(|what| format!("{}: {what}", entry.name)));
        }
        Ok(differences)
    }
}

impl Entry {
    fn dtype(&self) -> Result<DType, Box<dyn Error>> {
        Ok(self.dtype.parse()?)
    }

    /// What differs in `leaf` from step 0.
    pub(crate) fn difference(
        &self,
        leaf: &Leaf<'_>,
    ) -> Result<Option<&'static str>, Box<dyn Error>> {
        let meta = leaf.meta();
        Ok(if meta.dtype != self.dtype()? || meta.shape.lengths() != self.shape {
            Some("another type or shape")
        } else if crc32fast::hash(leaf.contents().unwrap_or_default()) != self.crc32 {
            Some("the bytes differ")
        } else {
            None
        })
    }
}

/// The state at `step`, from that at step 0: what does not change is shared with it.
pub(crate) fn at_step(first: &State, step: u64) -> State {
    let mut state = first.clone();
    if step > 0 {
        for array in state.arrays_mut().into_iter().filter(|array| array.changes) {
            match &mut array.values {
                Values::F32(values) => {
                    let factor = 1.0 + step as f32 / 1024.0;
                    values.map_inplace(|value| *value *= factor);
                }
                // The number of the step is the one integer that changes.
                Values::I32(values) => values.map_inplace(|value| *value += step as i32),
                Values::Bf16(_) | Values::U32(_) => {}
            }
        }
    }
    state
}
