//! The limits: the same bytes through plain file operations.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread;
use std::time::Instant;

use crate::state::State;

/// Writes the arrays of `state` to a new file and syncs it; seconds.
pub(crate) fn write_new(path: &Path, state: &State) -> f64 {
    let _ = std::fs::remove_file(path);
    let began = Instant::now();
    let mut file = File::create(path).expect("a new file");
    for array in state.arrays() {
        file.write_all(array).expect("room for the file");
    }
    file.sync_data().expect("a sync");
    began.elapsed().as_secs_f64()
}

/// Reads the file that [`write_new`] wrote into the arrays of `target`, on several threads;
/// seconds.
pub(crate) fn read_into(path: &Path, target: &mut State, threads: usize) -> f64 {
    let began = Instant::now();
    let mut parts: Vec<Vec<(u64, &mut [u8])>> = (0..threads).map(|_| Vec::new()).collect();
    let share = target.bytes().div_ceil(threads) as u64;
    let mut offset = 0;
    for array in target.arrays_mut() {
        let length = array.len() as u64;
        parts[(offset / share) as usize].push((offset, array));
        offset += length;
    }
    thread::scope(|scope| {
        for part in parts {
            scope.spawn(move || {
                let mut file = File::open(path).expect("the file");
                for (offset, array) in part {
                    file.seek(SeekFrom::Start(offset)).expect("a seek");
                    file.read_exact(array).expect("the bytes");
                }
            });
        }
    });
    began.elapsed().as_secs_f64()
}
