//! The limits: the same bytes copied in memory, and through plain file operations.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use rustix::fs::{FallocateFlags, fallocate, syncfs};

use crate::common::state::State;

/// The page that a pack of a store takes.
const PAGE_BYTES: usize = 512 << 10;

/// What is known of the file before it is written.
#[derive(Clone, Copy)]
pub(crate) enum Prepared {
    /// It is not there.
    New,
    /// Its blocks are set aside, and never written.
    Preallocated,
    /// It is there, and as long.
    Existing,
}

/// Copies the arrays of `state` to those of `target`.
pub(crate) fn copy(state: &State, target: &mut State) {
    for (from, to) in state.arrays().into_iter().zip(target.arrays_mut()) {
        to.values.bytes_mut().copy_from_slice(from.values.bytes());
    }
}

/// Makes the file at `path` what it is to be before [`write()`].
pub(crate) fn prepare(path: &Path, state: &State, prepared: Prepared) {
    match prepared {
        Prepared::Existing => {
            let length = fs::metadata(path).expect("a file that was written").len();
            assert_eq!(length, state.size_bytes());
        }
        Prepared::New => {
            let _ = fs::remove_file(path);
        }
        Prepared::Preallocated => {
            let _ = fs::remove_file(path);
            let file = File::create(path).expect("a new file");
            fallocate(&file, FallocateFlags::empty(), 0, state.size_bytes())
                .expect("room for the file");
        }
    }
    let folder = File::open(path.parent().expect("a folder")).expect("the folder");
    syncfs(folder).expect("a sync");
}

/// Writes the arrays of `state` to the file one after the other, and syncs it.
pub(crate) fn write(path: &Path, state: &State) {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(false).open(path).expect("the file");
    for array in state.arrays() {
        file.write_all(array.values.bytes()).expect("room for the file");
    }
    file.sync_data().expect("a sync");
}

/// Reads the file that [`write()`] wrote into the arrays of `target`, on several threads.
pub(crate) fn read_into(path: &Path, target: &mut State, threads: usize) {
    read(path, pieces(target), threads, read_direct);
}

/// Reads it as a store does that has a pager between the file and its caller, and checks what it
/// reads: part by part into a new buffer of a page, which is then checksummed and copied.
pub(crate) fn read_through_pages(path: &Path, target: &mut State, threads: usize) {
    read(path, pieces(target), threads, |file, piece, offset| {
        let mut offset = offset;
        for part in piece.chunks_mut(PAGE_BYTES) {
            let mut page = vec![0; part.len()];
            read_direct(file, &mut page, offset);
            black_box(crc32fast::hash(&page));
            part.copy_from_slice(&page);
            offset += page.len() as u64;
        }
    });
}

fn pieces(target: &mut State) -> Vec<&mut [u8]> {
    target.arrays_mut().into_iter().map(|array| array.values.bytes_mut()).collect()
}

/// Reads the file into memory that is new.
pub(crate) fn read_fresh(path: &Path, bytes: u64, threads: usize) -> Vec<u8> {
    let mut memory = vec![0; usize::try_from(bytes).expect("memory can be addressed")];
    read(path, vec![&mut memory], threads, read_direct);
    memory
}

/// Reads a part of the file into memory that is new.
pub(crate) fn read_part_fresh(path: &Path, bytes: usize) -> Vec<u8> {
    let mut memory = vec![0; bytes];
    read_direct(&File::open(path).expect("the file"), &mut memory, 0);
    memory
}

fn read_direct(file: &File, piece: &mut [u8], offset: u64) {
    file.read_exact_at(piece, offset).expect("the bytes");
}

/// Fills `pieces` from the file, which holds them one after the other. Each thread reads one
/// stretch of the file.
fn read(
    path: &Path,
    pieces: Vec<&mut [u8]>,
    threads: usize,
    read_piece: impl Fn(&File, &mut [u8], u64) + Sync,
) {
    let total: usize = pieces.iter().map(|piece| piece.len()).sum();
    let share = total.div_ceil(threads).max(1);
    let mut parts: Vec<Vec<(u64, &mut [u8])>> = (0..threads).map(|_| Vec::new()).collect();
    let mut offset = 0;
    for mut rest in pieces {
        while !rest.is_empty() {
            let part = offset / share;
            let (head, tail) = rest.split_at_mut(rest.len().min((part + 1) * share - offset));
            let length = head.len();
            parts[part].push((offset as u64, head));
            offset += length;
            rest = tail;
        }
    }
    let read_part = |part: Vec<(u64, &mut [u8])>| {
        let file = File::open(path).expect("the file");
        for (offset, piece) in part {
            read_piece(&file, piece, offset);
        }
    };
    thread::scope(|scope| {
        let mut parts = parts.into_iter();
        let own = parts.next();
        parts.for_each(|part| drop(scope.spawn(|| read_part(part))));
        own.map(read_part)
    });
}
