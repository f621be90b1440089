//! States on disk: a workload is made once, on all processors, and lies in a file of nothing but
//! the elements of its arrays, one array after the other, little-endian.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use super::Workload;
use super::values::generator;
use crate::common::state::{Array, HandOver, State, Values};

const SEED: u64 = 1;

/// Goes up when the same seed gives other elements.
const GENERATOR: u32 = 1;

/// Elements that are drawn from one generator.
const PART: usize = 1 << 20;

impl Workload {
    /// The state, from its file in `folder`, which is made if it is not there.
    pub(crate) fn load(&self, folder: &Path) -> State {
        let path = self.file(folder);
        let length = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        if length != self.size_bytes() {
            self.generate(&path);
        }
        let mut file = File::open(&path).expect("the data of the workload");
        let mut state = State::new();
        for array in &self.arrays {
            let values = Values::read(array.dtype, &array.shape, &mut file);
            state.insert(
                &array.name,
                Array {
                    values: values.expect("the file is as long as the arrays"),
                    changes: array.changes,
                    hand_over: HandOver::Borrowed,
                },
            );
        }
        state
    }

    fn file(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}-v{GENERATOR}-seed{SEED}.bin", self.name))
    }

    /// Writes the file under another name first, so that a cut one is never taken for whole.
    fn generate(&self, path: &Path) {
        eprintln!("making {}", path.display());
        fs::create_dir_all(path.parent().expect("a folder")).expect("the folder for the data");
        let unfinished = path.with_extension("unfinished");
        let file = File::create(&unfinished).expect("room for the data");
        let parts = Mutex::new(self.parts().into_iter());
        let work = || {
            while let Some(part) = { parts.lock().expect("no thread panics").next() } {
                let bytes = self.draw(&part);
                file.write_all_at(&bytes, part.offset).expect("room for the data");
            }
        };
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        file.sync_all().expect("room for the data");
        fs::rename(unfinished, path).expect("the data gets its name");
    }

    fn parts(&self) -> Vec<Part> {
        let (mut parts, mut offset) = (Vec::new(), 0);
        for (array, spec) in self.arrays.iter().enumerate() {
            let elements = spec.elements();
            for (index, first) in (0..elements).step_by(PART).enumerate() {
                let count = PART.min(elements - first);
                parts.push(Part { array, index, count, offset });
                offset += (count * spec.dtype.size_bytes()) as u64;
            }
        }
        parts
    }

    fn draw(&self, part: &Part) -> Vec<u8> {
        let spec = &self.arrays[part.array];
        let generator = |part: u64, array: usize| generator(SEED, array as u64, part);
        let scale = generator(u64::MAX, part.array);
        spec.values.draw(spec.dtype, part.count, scale, generator(part.index as u64, part.array))
    }
}

/// A run of elements of one array.
struct Part {
    array: usize,
    index: usize,
    count: usize,
    /// Where it goes in the file.
    offset: u64,
}
