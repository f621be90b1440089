//! Trains a small neural network on handwritten digits.
//!
//! ```text
//! cargo run --release --example train_digits
//! ```

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

mod adam;
mod data;
mod network;
mod options;
mod progress;
mod shuffle;
mod state;

fn main() -> ExitCode {
    match train(&options::Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn train(options: &options::Options) -> Result<(), Box<dyn Error>> {
    let digits = data::Digits::load()?;
    let mut state = state::TrainState::new(options.seed);
    state.check(options.seed)?;
    let progress = progress::Progress::new(options.steps, state.step)?;
    while state.step < options.steps {
        state.train_step(&digits);
        progress.step(&state);
        if state.step.is_multiple_of(options.save_every) || state.step == options.steps {
            state.evaluate(&digits);
        }
    }
    progress.finish();
    let (loss, accuracy) = (state.metrics.loss, state.metrics.test_accuracy);
    writeln!(
        io::stdout(),
        "step {} loss {loss:.6} test_accuracy {accuracy:.4} in {}",
        state.step,
        options.store.display()
    )?;
    Ok(())
}
