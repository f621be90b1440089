//! What a stretch of work costs: time, processor time, memory, bytes read and written. The figures
//! are those that Linux has of the whole process.

use std::fs;
use std::hint::black_box;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// What a stretch of work cost.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Cost {
    #[serde(rename = "s")]
    pub(crate) seconds: f64,
    /// User and system together, finer than the two.
    #[serde(skip)]
    pub(crate) cpu_s: f64,
    pub(crate) cpu_user_s: f64,
    pub(crate) cpu_sys_s: f64,
    /// Resident memory just before, in bytes.
    pub(crate) rss_before: u64,
    /// The most that it was meanwhile.
    pub(crate) peak_rss: u64,
    pub(crate) peak_over_before: u64,
    pub(crate) prefault_s: f64,
    pub(crate) io: Io,
}

/// What `/proc/self/io` counts: `rchar` and `wchar` are bytes that went through calls, `read_bytes`
/// and `write_bytes` those that came from the disk or are to go there.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Io {
    pub(crate) rchar: u64,
    pub(crate) wchar: u64,
    pub(crate) syscr: u64,
    pub(crate) syscw: u64,
    pub(crate) read_bytes: u64,
    pub(crate) write_bytes: u64,
}

/// A stretch that is being measured.
pub(crate) struct Meter {
    prefault_s: f64,
    rss_before: u64,
    io: Io,
    user_and_sys_s: (f64, f64),
    cpu_s: f64,
    began: Instant,
}

impl Meter {
    /// Touches `touched_bytes` of memory and begins.
    pub(crate) fn start(touched_bytes: u64) -> Self {
        let prefault_s = touch(touched_bytes);
        // Writing 5 makes the peak what it is now: see proc(5).
        fs::write("/proc/self/clear_refs", "5").expect("the peak of memory can be set back");
        Self {
            prefault_s,
            rss_before: resident_bytes(),
            io: Io::now(),
            user_and_sys_s: user_and_sys_s(),
            cpu_s: cpu_s(),
            began: Instant::now(),
        }
    }

    /// The seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// The cost since the start.
    pub(crate) fn stop(&self) -> Cost {
        let seconds = self.seconds();
        let cpu_s = cpu_s() - self.cpu_s;
        let (user_s, sys_s) = user_and_sys_s();
        let (io, peak_rss) = (Io::now(), status_bytes("VmHWM:"));
        Cost {
            seconds,
            cpu_s,
            cpu_user_s: user_s - self.user_and_sys_s.0,
            cpu_sys_s: sys_s - self.user_and_sys_s.1,
            rss_before: self.rss_before,
            peak_rss,
            peak_over_before: peak_rss.saturating_sub(self.rss_before),
            prefault_s: self.prefault_s,
            io: io.since(self.io),
        }
    }
}

impl Cost {
    /// All stretches together; memory is the most that one of them took. `None` if there are none.
    pub(crate) fn sum(costs: &[&Self]) -> Option<Self> {
        let (first, rest) = costs.split_first()?;
        Some(rest.iter().fold((*first).clone(), |sum, cost| Self {
            seconds: sum.seconds + cost.seconds,
            cpu_s: sum.cpu_s + cost.cpu_s,
            cpu_user_s: sum.cpu_user_s + cost.cpu_user_s,
            cpu_sys_s: sum.cpu_sys_s + cost.cpu_sys_s,
            rss_before: sum.rss_before,
            peak_rss: sum.peak_rss.max(cost.peak_rss),
            peak_over_before: sum.peak_over_before.max(cost.peak_over_before),
            prefault_s: sum.prefault_s + cost.prefault_s,
            io: sum.io.plus(cost.io),
        }))
    }
}

impl Io {
    fn plus(self, more: Self) -> Self {
        Self {
            rchar: self.rchar + more.rchar,
            wchar: self.wchar + more.wchar,
            syscr: self.syscr + more.syscr,
            syscw: self.syscw + more.syscw,
            read_bytes: self.read_bytes + more.read_bytes,
            write_bytes: self.write_bytes + more.write_bytes,
        }
    }

    fn now() -> Self {
        let text = fs::read_to_string("/proc/self/io").expect("Linux counts the bytes");
        let field = |name: &str| number_after(&text, name);
        Self {
            rchar: field("rchar:"),
            wchar: field("wchar:"),
            syscr: field("syscr:"),
            syscw: field("syscw:"),
            read_bytes: field("read_bytes:"),
            write_bytes: field("write_bytes:"),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            rchar: self.rchar - before.rchar,
            wchar: self.wchar - before.wchar,
            syscr: self.syscr - before.syscr,
            syscw: self.syscw - before.syscw,
            read_bytes: self.read_bytes - before.read_bytes,
            write_bytes: self.write_bytes - before.write_bytes,
        }
    }
}

/// Touches that much memory and gives it back at once, so that the host of a virtual machine backs
/// what the timed part will need. It never takes memory from the page cache. Seconds.
pub(crate) fn touch(bytes: u64) -> f64 {
    const LEFT_ALONE: u64 = 1 << 30;
    let began = Instant::now();
    let meminfo = fs::read_to_string("/proc/meminfo").expect("Linux tells the free memory");
    let free = number_after(&meminfo, "MemFree:") * 1024;
    let bytes = bytes.min(free.saturating_sub(LEFT_ALONE));
    let mut memory = vec![0u8; usize::try_from(bytes).expect("memory can be addressed")];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    black_box(&memory);
    drop(memory);
    began.elapsed().as_secs_f64()
}

/// The resident memory of the process.
pub(crate) fn resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

fn status_bytes(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells the memory");
    number_after(&status, field) * 1024
}

/// The first number after the first `name` that begins a line.
fn number_after(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{name} is not there"))
}

/// Processor time of all threads.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The same apart, in ticks of 10 ms.
fn user_and_sys_s() -> (f64, f64) {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux counts processor time");
    // Field 2, in parentheses, is the name of the program, which may hold anything.
    let (_, fields) = stat.rsplit_once(')').expect("the name ends");
    let ticks = |number: usize| -> f64 {
        let field = fields.split_whitespace().nth(number - 3).expect("the field is there");
        field.parse::<u32>().map_or(0.0, f64::from)
    };
    (ticks(14) / 100.0, ticks(15) / 100.0)
}
