//! `milepost`: looks into a store file, read-only, beside a running trainer too.
//!
//! Exit status: 0 all is well, 1 damage was found, 2 the command could not be run.

#![forbid(unsafe_code)]
#![warn(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions
)]

mod show;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use milepost::{CheckpointStore, ErrorKind};

/// Looks into milepost checkpoint stores. Files are opened read-only and never changed.
#[derive(Parser)]
#[command(version, after_help = "Exit status: 0 fine, 1 damage found, 2 could not run.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the saved steps
    Ls(File),
    /// Show the structure of a step: containers, leaves, element types and shapes
    Tree {
        #[command(flatten)]
        file: File,
        /// The number of the step
        step: u64,
    },
    /// Read and check every record and every chunk of every step
    Verify(File),
}

#[derive(Args)]
struct File {
    /// The store file
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What a command found.
pub(crate) enum Finding {
    Fine,
    Damage,
}

fn main() -> ExitCode {
    let (text, finding) = match run(&Cli::parse().command) {
        Ok(result) => result,
        Err(error) => {
            eprintln!("milepost: {error}");
            let damaged = error.kind() == ErrorKind::Damaged;
            return ExitCode::from(if damaged { 1 } else { 2 });
        }
    };
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever reads our output has seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("milepost: can't write the output: {error}");
            ExitCode::from(2)
        }
        _ => match finding {
            Finding::Fine => ExitCode::SUCCESS,
            Finding::Damage => ExitCode::from(1),
        },
    }
}

fn run(command: &Command) -> milepost::Result<(String, Finding)> {
    match command {
        Command::Ls(file) => {
            let store = CheckpointStore::open_read_only(&file.file)?;
            let (mut infos, mut damaged) = (Vec::new(), Vec::new());
            for step in store.all_steps()? {
                match store.step_info(step) {
                    Ok(info) => infos.push(info),
                    Err(error) if error.kind() == ErrorKind::Damaged => damaged.push(error),
                    // Deleted since the list was read.
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            let finding = if damaged.is_empty() { Finding::Fine } else { Finding::Damage };
            Ok((show::steps(&infos, &damaged, file.json), finding))
        }
        Command::Tree { file, step } => {
            let reader = CheckpointStore::open_read_only(&file.file)?.read(*step)?;
            Ok((show::structure(&reader, file.json)?, Finding::Fine))
        }
        Command::Verify(file) => {
            let report = CheckpointStore::open_read_only(&file.file)?.verify()?;
            let finding = if report.faults.is_empty() { Finding::Fine } else { Finding::Damage };
            Ok((show::report(&report, file.json), finding))
        }
    }
}
