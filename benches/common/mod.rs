//! What the benches share: the states, the store, and what a stretch of work costs.

pub(crate) mod files;
pub(crate) mod meter;
pub(crate) mod report;
pub(crate) mod state;
pub(crate) mod store;
