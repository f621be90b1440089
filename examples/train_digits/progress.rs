//! The progress bar: on the terminal's error stream, hidden where that is no terminal.

use std::error::Error;

use indicatif::{ProgressBar, ProgressStyle};

use crate::state::TrainState;

/// How far a run is.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar of `steps`, of which earlier runs did `done`.
    pub(crate) fn new(steps: u64, done: u64) -> Result<Self, Box<dyn Error>> {
        let style = "{elapsed_precise} [{wide_bar}] {pos}/{len} steps, {eta} left {msg}";
        let bar = ProgressBar::new(steps)
            .with_style(ProgressStyle::with_template(style)?.progress_chars("=> "))
            .with_position(done);
        // The time left follows from this run's own speed.
        bar.reset_eta();
        Ok(Self(bar))
    }

    /// Shows that another step of `state` is done.
    pub(crate) fn step(&self, state: &TrainState) {
        if !self.0.is_hidden() {
            let metrics = &state.metrics;
            let accuracy = 100.0 * metrics.test_accuracy;
            let epoch = state.data.epoch;
            let loss = metrics.loss;
            self.0.set_message(format!("epoch {epoch} loss {loss:.4} accuracy {accuracy:.1} %"));
        }
        self.0.set_position(state.step);
    }

    /// Leaves the full bar on the screen.
    pub(crate) fn finish(&self) {
        self.0.finish();
    }
}
