//! Times as they are stored.

use std::time::{Duration, SystemTime};

/// Nanoseconds since 1970-01-01 UTC; times before are refused by no clock that we know of and
/// become 0, times after 2554 the last nanosecond.
pub(crate) fn to_unix_ns(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn from_unix_ns(unix_ns: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(unix_ns)
}
