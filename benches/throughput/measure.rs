//! Time, memory and file sizes.

use std::fs;
use std::hint::black_box;
use std::path::Path;

/// The middle value of the samples.
pub(crate) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Touches that many bytes of memory, so that the host of a virtual machine has given them back
/// to us when the timed part begins.
pub(crate) fn touch(bytes: usize) {
    let mut memory = vec![0u8; bytes];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    black_box(&memory);
}

/// The resident memory of the process, in MiB; `None` where the system can't tell.
pub(crate) fn resident_mib() -> Option<f64> {
    status_mib("VmRSS:")
}

/// How far the resident memory of the process peaks over `baseline_mib` while `timed` runs, in MiB;
/// NaN where the system can't tell.
pub(crate) fn memory_beyond<T>(baseline_mib: Option<f64>, timed: impl FnOnce() -> T) -> (f64, T) {
    // Writing 5 resets the peak: see proc(5).
    let reset = fs::write("/proc/self/clear_refs", "5").is_ok();
    let result = timed();
    let beyond = match (reset, baseline_mib, status_mib("VmHWM:")) {
        (true, Some(baseline), Some(peak)) => (peak - baseline).max(0.0),
        _ => f64::NAN,
    };
    (beyond, result)
}

fn status_mib(field: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib / 1024.0)
}

/// The length of a file and what it takes of the disk, in bytes.
pub(crate) fn file_sizes(path: &Path) -> (f64, f64) {
    let metadata = fs::metadata(path).expect("the file is there");
    let length = metadata.len() as f64;
    #[cfg(unix)]
    let used = std::os::unix::fs::MetadataExt::blocks(&metadata) as f64 * 512.0;
    #[cfg(not(unix))]
    let used = length;
    (length, used)
}
