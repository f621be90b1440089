//! milepost: an embedded checkpoint store for long-running machine-learning trainers.

#[cfg(target_endian = "big")]
compile_error!("milepost stores little-endian data and maps it in place: it needs a little-endian target");

pub mod limits;

mod error;
mod path;

pub use error::{Error, ErrorKind, Result};
pub use path::{Key, KeyPath};
