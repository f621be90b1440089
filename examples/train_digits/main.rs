//! Trains a small neural network on handwritten digits, and survives any `kill -9`.
//!
//! ```text
//! cargo run --release --example train_digits
//! ```
//!
//! Started again, it goes on from the last saved step and ends with the same line, digest
//! included, as a run that nobody stopped. `session.rs` is the part that uses milepost;
//! `state.rs` shows what a complete state is made of.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

mod adam;
mod data;
mod network;
mod options;
mod progress;
mod session;
mod shuffle;
mod state;

fn main() -> ExitCode {
    match train() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn train() -> Result<(), Box<dyn Error>> {
    let summary = session::run(&options::Options::parse())?;
    writeln!(io::stdout(), "{summary}")?;
    Ok(())
}
